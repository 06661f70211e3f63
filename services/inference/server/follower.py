"""Keeps the served policy equal to the run's `policy` record, even if reloads were missed.

After a restart, the server finds its version this way. It only reads the record.
"""

import asyncio
import logging
import math
import time

from rookery.errors import Conflict, InvalidInput, Unavailable
from rookery.streams import PolicyRecord
from rookery.trace import Adapter
from services.inference.server.sleep import Sleeper

logger = logging.getLogger(__name__)

POLL_S = 1.0
REFUSED_RETRY_S = 15.0
"""Pause before a refused record is tried again: on a slow shared volume its files may arrive late."""


class PolicyFollower:
    """Loads each new record once, so a manual rollback stays until the record changes."""

    def __init__(self, record: PolicyRecord, policies: Sleeper) -> None:
        self.waiting_for = "the first look at the policy record"
        self._record = record
        self._policies = policies
        self._seen: Adapter | None = None
        self._settled = False
        self._refused_at = -math.inf

    async def run(self) -> None:
        """Reads the record every `POLL_S` seconds until cancelled."""
        while True:
            await self.follow_once()
            await asyncio.sleep(POLL_S)

    async def follow_once(self) -> None:
        """Reads the record once, and loads its version if it is new."""
        try:
            adapter = await asyncio.to_thread(self._record.read)
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
            # Without waking a server that the trainer has put to sleep since it published this version.
            await self._policies.reload(adapter, wake=False)
        except Conflict:
            # Either a /reload was faster than this read, and the record has changed since; or the run went
            # back, because a trainer resumed from an older commit. Then the record decides.
            if await asyncio.to_thread(self._record.read) != adapter:
                return
            await self._policies.reload(adapter, rollback=True, wake=False)
        self._settled, self.waiting_for = True, ""

    def _wait(self, reason: str) -> None:
        if reason != self.waiting_for:
            logger.warning("the policy record: %s", reason)
        self.waiting_for = reason
