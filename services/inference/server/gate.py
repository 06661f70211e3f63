"""The door that every request passes, so that it can be shut while weights change.

A request that has passed is answered whole before the door counts as empty. One that comes while it is
shut waits outside, and finds afterwards that the version it names is gone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rookery.errors import Unavailable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OWN_PATHS = frozenset({"/reload"})
"""What passes a shut door: the request that shuts it."""


class Gate:
    """Open at first. For one event loop."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._inside = 0

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Inside while the block lasts; waits for the door to open."""
        while not self._open.is_set():
            await self._open.wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def shut(self, *, within_s: float) -> AsyncIterator[None]:
        """Nobody is inside while the block lasts.

        Raises:
            Unavailable: somebody still was after `within_s`; the door is open again.
        """
        self._open.clear()
        try:
            try:
                async with asyncio.timeout(within_s):
                    await self._empty.wait()
            except TimeoutError:
                raise Unavailable(
                    f"requests in work did not end within {within_s:g} s: {self._inside}"
                ) from None
            yield
        finally:
            self._open.set()


class GateMiddleware:
    """Sends every POST through a gate, whatever route it is for."""

    def __init__(self, app: "ASGIApp", gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] in OWN_PATHS:
            await self._app(scope, receive, send)
            return
        async with self._gate.passing():
            await self._app(scope, receive, send)
