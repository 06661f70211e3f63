"""A gate for all requests: shut while weights change, closed for good when the server ends.

Shutting waits until the requests inside are answered completely. A request that arrives at a shut gate
waits, and may then get a 404 because the version it names is gone. Closing ends every open request: with
503, or with a broken connection if its answer has already begun.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from rookery.errors import Unavailable
from rookery.serving import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OWN_PATHS = frozenset({"/reload"})
"""These paths pass a shut gate: `/reload` is the request that shuts it."""


class Closed(Unavailable):
    """The server is stopping."""


class Gate:
    """Open at first. Use it in one event loop only."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._inside = 0
        self._requests = set["asyncio.Task[None]"]()
        self._closed: Closed | None = None

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Waits for the gate to open, and counts as inside during the block."""
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
        """Lets new requests wait, and runs the block once none is inside.

        Raises:
            Unavailable: requests were still inside after `within_s`; the gate is open again.
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

    @asynccontextmanager
    async def until_closed(self) -> AsyncIterator[None]:
        """Registers the current task as a request during the block, so that `close` can cancel it.

        Raises:
            Closed: `close` was called before, or cancelled the block.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - always so in a coroutine
        if self._closed:
            raise self._closed
        self._requests.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._closed:
                raise
            task.uncancel()
            raise self._closed from None
        finally:
            self._requests.discard(task)

    async def close(self, reason: str, *, within_s: float) -> None:
        """Cancels open requests and refuses new ones. Waits at most `within_s` for the open ones to end."""
        self._closed = Closed(reason)
        requests = list(self._requests)
        for task in requests:
            task.cancel()
        if requests:
            await asyncio.wait(requests, timeout=within_s)


class GateMiddleware:
    """Sends the requests of all routes through a gate. Only a POST waits while the gate is shut."""

    def __init__(self, app: "ASGIApp", gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: "Message") -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with self._gate.until_closed():
                if scope["method"] != "POST" or scope["path"] in OWN_PATHS:
                    await self._app(scope, receive, noting)
                else:
                    async with self._gate.passing():
                        await self._app(scope, receive, noting)
        except Closed as closed:
            if not begun:  # otherwise uvicorn breaks the connection, because the answer is incomplete
                body = problem(closed)
                answer = JSONResponse(body, closed.http_status, media_type="application/problem+json")
                await answer(scope, receive, send)
