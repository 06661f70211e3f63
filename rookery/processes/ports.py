"""Ports of a run: the default when it is free, another when nobody asked for that one."""

import socket
import sys
from types import TracebackType
from typing import Self

from rookery.errors import SetupError


class Ports:
    """Ports promised to our children, and kept for them until they listen.

    On Linux a socket that is bound but does not listen keeps others away, a second `rookery up` among
    them, but not a child of ours: both sides set SO_REUSEADDR. Elsewhere nothing is kept, and a port
    taken in the meantime is the child's to complain about.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._chosen: set[int] = set()
        self._kept: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for sock in self._kept:
            sock.close()

    def choose(self, default: int, *, asked: int | None = None, setting: str = "") -> int:
        """The port asked for, else the default if it is free, else a free one.

        Raises:
            SetupError: the one that was asked for is in use; the message names the setting.
        """
        if asked is not None:
            if asked in self._chosen or not self._bind(asked, share=True):
                raise SetupError(f"port {asked} on {self._host} is taken: choose another with {setting}")
            return asked
        return self._bind(default, share=False) or self._bind(0, share=False)

    def _bind(self, port: int, *, share: bool) -> int:
        """The port once it is ours, 0 when it is somebody else's; `share` sees listeners alone."""
        sock = socket.socket()
        try:
            if share:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, port))
        except OSError:
            sock.close()
            return 0
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = int(sock.getsockname()[1])
        self._chosen.add(port)
        if sys.platform == "linux":
            self._kept.append(sock)
        else:
            sock.close()
        return port
