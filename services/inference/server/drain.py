"""Drains requests: before the weights change, and when the server is stopping. Ends the server on a signal.

While the weights change, new requests wait until those in flight are answered completely and the change is
done. They may then get a 404, because the version they name is gone. When the server is stopping, every open
request ends: with 503, or with a broken connection if its answer has already begun. Until then, connections
that are idle or too many are closed.
"""

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from rookery.connections import bounded, close_waiting, connection_limit
from rookery.errors import Unavailable, problem

if TYPE_CHECKING:
    import uvicorn
    from starlette.datastructures import State
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger(__name__)

EXEMPT_PATHS = frozenset({"/reload", "/sleep", "/wake_up", "/lease", "/v1/move"})
"""Requests for these paths never wait: the others wait for the first three, a lease needs no engine, and the
request that /v1/move makes waits itself."""

MOST_DRAIN_S = 600.0
"""Longest time limit for the requests in flight: what clients wait for an answer."""

HOLD_S = 35.0
"""How long new requests still wait after a change that failed, for the retry to begin: the trainer's pauses
between calls of /sleep are 30 s at most, and the policy record is read every second."""

_RECENT = 256
"""Number of answers whose times decide the limit."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)

GRACE_S = 3
"""Time limit for requests to end after they are cancelled, and then for connections to close. `rookery up`
kills the server after 20 s."""

_LOOK_S = 0.2


class Closed(Unavailable):
    """The server is stopping."""


class RequestDrainer:
    """Counts requests in flight and holds back new ones. Use it in one event loop only."""

    def __init__(self, *, least_s: float = 100.0) -> None:
        """`least_s` is the least time limit of `drained`."""
        self._least_s = least_s
        self._recent_s = deque[float](maxlen=_RECENT)
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight = 0
        self._reopening: asyncio.TimerHandle | None = None
        self._requests = set["asyncio.Task[None]"]()
        self._closed: Closed | None = None

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Waits while requests are held back, and counts as one in flight during the block."""
        while not self._open.is_set():
            await self._open.wait()
        self._in_flight += 1
        self._idle.clear()
        started = time.monotonic()
        try:
            yield
        finally:
            self._recent_s.append(time.monotonic() - started)
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    @property
    def limit_s(self) -> float:
        """Time limit for the requests in flight: twice the time of the longest recent answer."""
        return max(self._least_s, min(MOST_DRAIN_S, 2 * max(self._recent_s, default=0.0)))

    @asynccontextmanager
    async def drained(self) -> AsyncIterator[None]:
        """Holds back new requests, and runs the block once none is in flight. Raises `Unavailable` if
        requests were still in flight after `limit_s`. After that error, and one of the block, new requests
        wait for another `HOLD_S`, so that a retry in that time finds fewer in flight, and not new ones."""
        self._open.clear()
        if self._reopening:
            self._reopening.cancel()
            self._reopening = None
        limit_s, hold_s = self.limit_s, 0.0
        try:
            try:
                async with asyncio.timeout(limit_s):
                    await self._idle.wait()
            except TimeoutError:
                raise Unavailable(
                    f"requests in flight did not end within {limit_s:g} s: {self._in_flight}"
                ) from None
            yield
        except Unavailable:
            hold_s = HOLD_S
            raise
        finally:
            if hold_s:
                self._reopening = asyncio.get_running_loop().call_later(hold_s, self._open.set)
            else:
                self._open.set()

    def release(self) -> None:
        """Admits the requests that wait for a retry, because there will be none."""
        if self._reopening:
            self._reopening.cancel()
            self._open.set()

    @asynccontextmanager
    async def cancellable(self) -> AsyncIterator[None]:
        """Registers the current task as a request during the block, so that `close` can cancel it. Raises
        `Closed` if `close` was called before, or cancelled the block."""
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
        responding = False

        async def sending(message: "Message") -> None:
            nonlocal responding
            responding = True
            await send(message)

        try:
            async with self._drainer.cancellable():
                if scope["method"] != "POST" or scope["path"] in EXEMPT_PATHS:
                    await self._app(scope, receive, sending)
                else:
                    async with self._drainer.admitted():
                        await self._app(scope, receive, sending)
        except Closed as closed:
            if not responding:  # otherwise uvicorn breaks the connection, because the answer is incomplete
                body = problem(closed)
                answer = JSONResponse(body, closed.http_status, media_type="application/problem+json")
                await answer(scope, receive, send)


async def shut_down_on_signal(client: "AsyncLLM", state: "State", drainer: RequestDrainer) -> None:
    """Ends the server: with status 0 on a signal, with status 1 if vLLM's engine dies.

    vLLM itself stops its engine first and then waits for its clients. It answers requests in flight with 200
    and the finish reason "abort", or never, and the process stays until the last client gives up. Here open
    requests end first, so every client gets its error at once, and the engine stops last. Raises `SystemExit`
    if the engine has died (status 1), so that a supervisor restarts the process.
    """
    server = await _started(state)
    server.config.http_protocol_class = bounded(server.config.http_protocol_class)
    # Without a limit, a client that does not read would keep its connection and this process open.
    server.config.timeout_graceful_shutdown = GRACE_S
    stopping = asyncio.Event()
    for number in SIGNALS:  # replaces vLLM's handlers
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    while not stopping.is_set() and not client.errored:
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _LOOK_S)
        close_waiting(server.server_state.connections, most=connection_limit())
    if stopping.is_set():
        logger.info("the server is stopping")
        await drainer.close("the server is stopping", within_s=GRACE_S)
        server.should_exit = True
        return
    # Do not leave this to vLLM's watchdog: it waits for requests that a dead engine may never answer.
    logger.critical("vLLM's engine has died: the server ends")
    await drainer.close("vLLM's engine has died", within_s=GRACE_S)
    raise SystemExit(1)


async def _started(state: "State") -> "uvicorn.Server":
    """Waits until vLLM's HTTP server listens, and returns it. vLLM has then set its signal handlers."""
    while not (hasattr(state, "server") and state.server.started):  # noqa: ASYNC110 - vLLM sets no event
        await asyncio.sleep(_LOOK_S)
    server: uvicorn.Server = state.server
    return server
