"""Limits the connections of an HTTP server: their number, how long they may wait, how long a head may be.

uvicorn has none of these limits, so that silent callers could take all descriptors of the process. Requests
are not looked at here.
"""

import asyncio
import errno
import resource
import socket
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

DESCRIPTORS = 1 << 16
"""The soft limit of open files, if the hard limit allows. Nothing needs more, and some programs close all."""

RESERVED = 256
"""Descriptors that are left to files, engines, Redis and other services."""

MAX_CONNECTIONS = 4096
ROOM = 8
"""At the limit, one connection of this many is closed, to make room."""

IDLE_S = 60.0
"""A caller has this long for a request, its body included, and for `PIECE_BYTES` of a large answer."""

PIECE_BYTES = 1 << 16

MAX_HEAD_BYTES = 1 << 16
"""The most bytes of the request line and the headers, if they take more than one read."""

GRACE_S = 1.0
"""A new connection has this long for its request or TLS handshake, even if there is no room for others."""

_QUEUE = 2048
_RETRY_S = 1.0
"""asyncio's `ACCEPT_RETRY_DELAY` after a lack of descriptors."""
_LACK_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open files as far as the hard limit allows, at most to `DESCRIPTORS`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(ValueError, OSError):  # macOS allows less than its hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def connection_limit() -> int:
    """The most connections of one server; a process has one of HTTP and one of gRPC."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    descriptors = DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    return min(MAX_CONNECTIONS, max(16, (descriptors - RESERVED) // 2))


class BoundedProtocol(asyncio.Protocol):
    """What `bounded` adds to uvicorn's protocol: a limit of the head, and how long it has been waiting."""

    transport: asyncio.Transport
    cycle: Any
    flow: Any
    since = 0.0
    """When the connection or newest request began, the last response ended, or the caller read a piece."""
    _head_bytes = 0
    _unread_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.since = time.monotonic()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        in_body = before is not None and before.more_body
        super().data_received(data)
        if self.cycle is not before:
            self.since, self._head_bytes = time.monotonic(), 0
        elif not in_body:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"Request head over {MAX_HEAD_BYTES} bytes.")

    def pause_writing(self) -> None:
        self.since, self._unread_bytes = time.monotonic(), self.transport.get_write_buffer_size()
        super().pause_writing()

    def note_reading(self) -> None:
        """Restarts the wait of a large answer if the caller has read a piece of it since the last one."""
        unread = self.transport.get_write_buffer_size()
        if unread <= self._unread_bytes - PIECE_BYTES:
            self.since, self._unread_bytes = time.monotonic(), unread

    def on_response_complete(self) -> None:
        self.since = time.monotonic()
        super().on_response_complete()  # type: ignore[misc]

    def send_400_response(self, message: str) -> None:
        super().send_400_response(message)  # type: ignore[misc]

    @property
    def was_answered(self) -> bool:
        """Whether the connection is between two requests."""
        return self.cycle is not None and bool(self.cycle.response_complete)

    @property
    def waits(self) -> bool:
        """Whether the server waits for the caller, not the caller for the server."""
        in_body = self.cycle is not None and self.cycle.more_body and not self.flow.read_paused
        return self.cycle is None or self.was_answered or in_body or self.flow.write_paused


def bounded(protocol: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    """uvicorn's class of HTTP connections with these bounds."""
    return type(protocol.__name__, (BoundedProtocol, protocol), {})


def close_waiting(connections: Collection[Any], *, most: int, fresh: int = 0) -> int:
    """Closes connections that have waited longer than `IDLE_S`, and the longest waiting of more than `most`.

    Among the latter, those without any answer so far are closed first. The newest `fresh` ones stay open for
    `GRACE_S`, because their requests may be on the way. Returns the number of closed connections.
    """
    now = time.monotonic()
    waiting = [peer for peer in connections if isinstance(peer, BoundedProtocol) and peer.waits]
    for peer in waiting:
        peer.note_reading()
    idle = [peer for peer in waiting if peer.since < now - IDLE_S]
    closed = {*closable(waiting, fresh=fresh)[: max(0, len(connections) - most)], *idle}
    for peer in closed:
        peer.transport.abort()
    return len(closed)


class Waiting(Protocol):
    """A connection of which the server waits for the caller."""

    @property
    def since(self) -> float: ...
    @property
    def was_answered(self) -> bool: ...


Peer = TypeVar("Peer", bound=Waiting)


def closable(waiting: Iterable[Peer], *, fresh: int) -> list[Peer]:
    """Those that can be closed to make room, the first first: see `close_waiting`."""
    by_age = sorted(waiting, key=lambda peer: peer.since)
    old, grace = len(by_age) - fresh, time.monotonic() - GRACE_S
    peers = [peer for place, peer in enumerate(by_age) if place < old or peer.since < grace]
    return sorted(peers, key=lambda peer: peer.was_answered)


class Listener(socket.socket):
    """A listening socket, made of `sock`, through which asyncio accepts at most `limit` connections.

    `connections` are uvicorn's. At the limit, some are closed: those that wait longest for their callers. If
    none waits, the new one is closed.
    """

    def __init__(self, sock: socket.socket, connections: Collection[Any], *, limit: int) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.setblocking(False)
        self._connections, self._limit = connections, limit
        self._accepted: dict[socket.socket, float] = {}
        self._paused_until = 0.0

    def listen(self, backlog: int = 0) -> None:
        """As `socket.listen`, with a long queue. asyncio's `backlog` also is how many it accepts in a row."""
        super().listen(_QUEUE)

    def accept(self) -> tuple[socket.socket, Any]:
        """As `socket.accept`, which asyncio calls until it raises one of these errors.

        Raises:
            BlockingIOError: nobody calls, or there will be room in a moment.
            ConnectionAbortedError: there was no room, and the new connection is closed.
            OSError: the process or the system has no more descriptors.
        """
        if time.monotonic() < self._paused_until:
            raise BlockingIOError
        if len(self._accepted) >= self._limit and not self._has_room():
            if self._make_room():
                raise BlockingIOError
            super().accept()[0].close()
            raise ConnectionAbortedError
        try:
            sock, address = super().accept()
        except OSError as error:
            if error.errno in _LACK_ERRNOS:
                # asyncio logs it and tries again after a second, but first goes on as if nothing were wrong.
                self._paused_until = time.monotonic() + _RETRY_S / 2
                self._make_room()
            raise
        self._accepted[sock] = time.monotonic()
        return sock, address

    def close_idle(self) -> None:
        """Closes the connections that are idle for too long. To be called once a second or so."""
        close_waiting(self._connections, most=self._limit)
        self._has_room()

    def _has_room(self) -> bool:
        """Forgets closed connections. Returns whether there is room for another one."""
        self._accepted = {sock: at for sock, at in self._accepted.items() if sock.fileno() >= 0}
        return len(self._accepted) < self._limit

    def _make_room(self) -> bool:
        """Closes connections, also those whose TLS handshake is slow, which uvicorn does not know yet."""
        share = self._limit // ROOM
        closed = close_waiting(self._connections, most=len(self._connections) - share, fresh=self._limit // 2)
        served = {peer.transport.get_extra_info("socket").fileno() for peer in self._connections}
        deadline = time.monotonic() - GRACE_S
        strangers = [
            sock for sock, at in self._accepted.items() if at < deadline and sock.fileno() not in served
        ]
        for sock in strangers[:share]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        return closed > 0 or len(strangers) > 0
