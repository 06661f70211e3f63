"""Limits the connections to the gRPC port, as `rookery.connections` limits those of HTTP.

gRPC accepts connections itself, and refuses those above a number until others time out. To leave room for new
callers, connections that wait for theirs are closed before there are so many.
"""

import asyncio
import inspect
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc

from rookery.connections import closable
from rookery.retries import pause

_OPEN = "/dev/fd"
"""The folder of this process's descriptors, in Linux and macOS."""
_CALM_S, _CROWDED_S = 0.1, 0.01
"""Seconds between two looks at the connections."""


@dataclass(eq=False)
class Caller:
    """A connection to the gRPC port. `since` is when it was seen first, or its last call ended."""

    since: float
    calls: int = 0
    """Calls in progress. Without any, the server waits for the caller."""
    was_answered: bool = False
    descriptor: int = -1


class GrpcConnections(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # not generic at run time
    """The connections of one server, to which it belongs as an interceptor: it counts calls in progress.
    Calls that an interceptor before it refuses do not count."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._callers: dict[str, Caller] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        kinds = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
        kind = next((name for name in kinds if getattr(handler, name, None)), None)
        return handler._replace(**{kind: self._counted(getattr(handler, kind))}) if kind else handler

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(method):

            async def stream(request: Any, context: Any) -> Any:
                with self._call(context.peer()):
                    async for answer in method(request, context):
                        yield answer

            return stream

        async def call(request: Any, context: Any) -> Any:
            with self._call(context.peer()):
                return await method(request, context)

        return call

    @contextmanager
    def _call(self, peer: str) -> Iterator[None]:
        address = unquote(peer).partition(":")[2]  # without ipv4: or ipv6:
        caller = self._callers.setdefault(address, Caller(time.monotonic()))
        caller.calls += 1
        try:
            yield
        finally:
            caller.calls, caller.was_answered, caller.since = caller.calls - 1, True, time.monotonic()
            if len(self._callers) > 2 * self._limit:  # most are gone
                self._callers = {address: each for address, each in self._callers.items() if each.calls}

    async def keep_room(self, port: int, stopping: asyncio.Event) -> None:
        """Keeps a quarter of the limit free for new callers, as long as some connections to `port` wait.
        Looks at the connections only if there are many, and either too many or more or fewer than before."""
        before = excess = closed = 0
        while not stopping.is_set():
            count = _count()
            if count > self._limit // 2 and (excess or count != before):
                excess, closed = self._close_waiting(port)
            else:
                excess = closed = 0
            before = count
            await pause(stopping, _CROWDED_S if closed else _CALM_S)

    def _close_waiting(self, port: int) -> tuple[int, int]:
        """Returns how many connections were too many, and how many of them waited and were closed."""
        now, callers = time.monotonic(), dict[str, Caller]()
        for address, descriptor in _connections(port):
            callers[address] = self._callers.get(address) or Caller(now)
            callers[address].descriptor = descriptor
        busy = {address: each for address, each in self._callers.items() if each.calls}
        self._callers = busy | callers
        waiting = [each for each in callers.values() if not each.calls]
        excess = max(0, len(callers) - self._limit * 3 // 4)
        closed = closable(waiting, fresh=self._limit // 2)[:excess]
        for caller in closed:
            _shut(caller.descriptor, port)
        return excess, len(closed)


def _count() -> int:
    """How many descriptors are open. Linux says so since 6.2; the size of the folder is 0 elsewhere."""
    with suppress(OSError):
        if count := os.stat("/proc/self/fd").st_size:  # noqa: PTH116 - pathlib is slow
            return count
    return len(os.listdir(_OPEN))  # noqa: PTH208 - pathlib is slow


def _connections(port: int) -> Iterator[tuple[str, int]]:
    """The callers of `port`, as gRPC writes their addresses, and the descriptors of their connections."""
    for name in os.listdir(_OPEN):  # noqa: PTH208 - pathlib is slow
        with suppress(OSError):  # no socket, or closed meanwhile
            sock = socket.socket(fileno=int(name))
            try:
                if _is_of(sock, port):
                    host, number = sock.getpeername()[:2]
                    host = host.removeprefix("::ffff:")
                    yield f"[{host}]:{number}" if ":" in host else f"{host}:{number}", int(name)
            finally:
                sock.detach()


def _is_of(sock: socket.socket, port: int) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getsockname()[1] == port


def _shut(descriptor: int, port: int) -> None:
    """Ends a connection to `port`; gRPC then closes it."""
    with suppress(OSError), open(os.dup(descriptor), "rb", buffering=0) as copy:  # noqa: PTH123
        # A copy, because gRPC may have closed the descriptor, which may be another connection's by now.
        sock = socket.socket(fileno=copy.fileno())
        try:
            if _is_of(sock, port):
                sock.shutdown(socket.SHUT_RDWR)
        finally:
            sock.detach()
