"""Keeps the served policy equal to the run's `policy` record, whatever reloads were missed.

After a restart this is how the server finds its version again. It reads; it never writes the record.
"""

import asyncio
import logging
import math
import time
from typing import Protocol

from rookery.errors import Conflict, InvalidInput, Unavailable
from rookery.trace import Adapter
from services.inference.server.policies import Policies

logger = logging.getLogger(__name__)

POLL_S = 1.0
REFUSED_RETRY_S = 15.0
"""A refused record is tried again this late: its files may be on their way through a slow volume."""


class PolicyRecord(Protocol):
    """Where the committed version is written down: `rookery.streams.RunStreams`. Blocking calls."""

    def ping(self, *, once: bool = False) -> None:
        """Raises `Unavailable` if it cannot be read now."""
        ...

    def policy(self) -> Adapter | None:
        """The committed version, if there is one."""
        ...


class PolicyFollower:
    """Loads each new record once. A rollback by hand therefore stands until the record moves on."""

    def __init__(self, record: PolicyRecord, policies: Policies) -> None:
        self.waiting_for = "the first look at the policy record"
        self._record = record
        self._policies = policies
        self._seen: Adapter | None = None
        self._settled = False
        self._refused_at = -math.inf

    async def run(self) -> None:
        """Follows until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(POLL_S)

    async def step(self) -> None:
        """One look at the record, and what follows from it."""
        try:
            adapter = await asyncio.to_thread(self._read)
            if adapter is None:
                self._wait("no policy published yet")
                return
            await self._follow(adapter)
        except Unavailable as error:
            self._wait(str(error))

    async def _follow(self, adapter: Adapter) -> None:
        if adapter != self._seen:
            self._seen, self._settled, self._refused_at = adapter, False, -math.inf
        if self._settled or time.monotonic() - self._refused_at < REFUSED_RETRY_S:
            return
        try:
            await self._reload(adapter)
        except InvalidInput as error:
            self._refused_at = time.monotonic()
            self._wait(f"{adapter.version.name} is refused: {error}")

    async def _reload(self, adapter: Adapter) -> None:
        try:
            await self._policies.reload(adapter)
        except Conflict:
            # Either a /reload was faster than this look at the record, which then says more by now, or
            # the run went back: a trainer resumed from an older commit, and the record is the truth.
            if await asyncio.to_thread(self._read) != adapter:
                return
            await self._policies.reload(adapter, rollback=True)
        self._settled, self.waiting_for = True, ""

    def _read(self) -> Adapter | None:
        self._record.ping(once=True)
        return self._record.policy()

    def _wait(self, reason: str) -> None:
        if reason != self.waiting_for:
            logger.warning("the policy record: %s", reason)
        self.waiting_for = reason
