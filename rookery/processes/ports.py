"""Ports of a run: the default when it is free, another when nobody asked for that one."""

import errno
import socket
import sys
from types import TracebackType
from typing import Self

from rookery.errors import SetupError


class PortTaken(SetupError):
    """A child could not listen on `port`: another process was faster."""

    def __init__(self, message: str, port: int) -> None:
        super().__init__(message)
        self.port = port


class Ports:
    """Ports promised to our children, and kept for them until they listen.

    On Linux a socket that is bound but does not listen keeps others away, a second `rookery up` among
    them, but not a child of ours: both sides set SO_REUSEADDR. Neither does it keep away a stranger who sets
    that option and listens; elsewhere nothing is kept. Such a port is given up by `replace`.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._chosen: dict[int, int] = {}
        self._settings: dict[int, str] = {}
        self._kept: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for sock in self._kept.values():
            sock.close()

    def choose(self, default: int, *, asked: int | None = None, setting: str = "") -> int:
        """The port asked for, else the default if it is free, else a free one; the same when called again.

        Raises:
            SetupError: the one that was asked for is in use; the message names the setting.
        """
        if default in self._chosen:
            return self._chosen[default]
        if asked is None:
            port = self._bind(default, share=False) or self._bind(0, share=False)
        else:
            self._settings[asked] = setting
            if asked in self._chosen.values() or not self._bind(asked, share=True):
                raise self._taken(asked)
            port = asked
        self._chosen[default] = port
        return port

    def replace(self, port: int) -> None:
        """Gives up a port that somebody else listens on: `choose` finds another.

        Raises:
            SetupError: somebody asked for this one.
        """
        if port in self._settings:
            raise self._taken(port)
        self._chosen = {default: chosen for default, chosen in self._chosen.items() if chosen != port}
        if port in self._kept:
            self._kept.pop(port).close()

    def _taken(self, port: int) -> SetupError:
        return SetupError(f"port {port} on {self._host} is taken: choose another with {self._settings[port]}")

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
        if sys.platform == "linux":
            self._kept[port] = sock
        else:
            sock.close()
        return port


def somebody_listens(host: str, port: int) -> bool:
    """Whether a process listens there: a socket that is only bound, or was just closed, does not count."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
