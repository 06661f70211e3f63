"""Drains requests: before the weights change, and when the server is stopping.

While the weights change, new requests wait until those in flight are answered completely and the change is
done. They may then get a 404, because the version they name is gone. When the server is stopping, every open
request ends: with 503, or with a broken connection if its answer has already begun.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from rookery.errors import Unavailable, problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

EXEMPT_PATHS = frozenset({"/reload", "/sleep", "/wake_up", "/lease"})
"""Requests for these paths never wait: the others wait for the first three, and a lease needs no engine."""

DRAIN_S = 100.0
"""Time limit for the requests in flight. It must be below the 120 s that the trainer waits for a reload."""


class Closed(Unavailable):
    """The server is stopping."""


class RequestDrainer:
    """Counts requests in flight and holds back new ones. Use it in one event loop only."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight = 0
        self._requests = set["asyncio.Task[None]"]()
        self._closed: Closed | None = None

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Waits while requests are held back, and counts as one in flight during the block."""
        while not self._open.is_set():
            await self._open.wait()
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    @asynccontextmanager
    async def drained(self, *, within_s: float) -> AsyncIterator[None]:
        """Holds back new requests, and runs the block once none is in flight.

        Raises:
            Unavailable: requests were still in flight after `within_s`. New requests no longer wait.
        """
        self._open.clear()
        try:
            try:
                async with asyncio.timeout(within_s):
                    await self._idle.wait()
            except TimeoutError:
                raise Unavailable(
                    f"requests in flight did not end within {within_s:g} s: {self._in_flight}"
                ) from None
            yield
        finally:
            self._open.set()

    @asynccontextmanager
    async def cancellable(self) -> AsyncIterator[None]:
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


class DrainMiddleware:
    """Passes all requests through a `RequestDrainer`. Only POST requests wait while it drains."""

    def __init__(self, app: "ASGIApp", drainer: RequestDrainer) -> None:
        self._app, self._drainer = app, drainer

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: "Message") -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with self._drainer.cancellable():
                if scope["method"] != "POST" or scope["path"] in EXEMPT_PATHS:
                    await self._app(scope, receive, sending)
                else:
                    async with self._drainer.admitted():
                        await self._app(scope, receive, sending)
        except Closed as closed:
            if not begun:  # otherwise uvicorn breaks the connection, because the answer is incomplete
                body = problem(closed)
                answer = JSONResponse(body, closed.http_status, media_type="application/problem+json")
                await answer(scope, receive, send)
