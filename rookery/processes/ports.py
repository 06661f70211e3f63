"""Opens listening sockets, and chooses the ports of a run's services."""

import errno
import socket
import sys
from typing import Self

from rookery.errors import SetupError


class PortTaken(SetupError):
    """A service could not listen on `port`, because another process listens on it."""

    def __init__(self, message: str, port: int) -> None:
        super().__init__(message)
        self.port = port


class Ports:
    """Ports for child processes, reserved until the children listen on them.

    On Linux, a port is reserved by a socket that is bound but does not listen. This keeps other processes
    away, for example a second `rookery up`. Children can still use the port, because both sides set
    SO_REUSEADDR. So can any other process that sets this option, and on other systems nothing is reserved.
    If a port is lost in this way, `replace` gives it up.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._chosen: dict[int, int] = {}
        self._settings: dict[int, str] = {}
        self._reserved: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for sock in self._reserved.values():
            sock.close()

    def choose(self, default: int, *, asked: int | None = None, setting: str = "") -> int:
        """Returns `asked` if given (0: any free port), else `default` if it is free, else any free port.

        Another call with the same `default` returns the same port. Raises `SetupError` if `asked` is in use;
        the message names `setting`.
        """
        if default in self._chosen:
            return self._chosen[default]
        if asked is None:
            port = self._bind(default, share=False) or self._bind(0, share=False)
        else:
            self._settings[asked] = setting
            port = 0 if asked in self._chosen.values() else self._bind(asked, share=True)
            if not port:
                raise self._taken_error(asked)
        self._chosen[default] = port
        return port

    def replace(self, port: int) -> None:
        """Gives up a port that another process listens on. The next `choose` returns another one. Raises
        `SetupError` if the user asked for this port."""
        if port in self._settings:
            raise self._taken_error(port)
        self._chosen = {default: chosen for default, chosen in self._chosen.items() if chosen != port}
        if port in self._reserved:
            self._reserved.pop(port).close()

    def _taken_error(self, port: int) -> SetupError:
        return SetupError(f"port {port} on {self._host} is taken: choose another with {self._settings[port]}")

    def _bind(self, port: int, *, share: bool) -> int:
        """Reserves `port` and returns it, or 0 if it is in use. With `share`, only listeners count as use."""
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
            self._reserved[port] = sock
        else:
            sock.close()
        return port


def is_listening(host: str, port: int) -> bool:
    """Whether a process listens on the port. Sockets that are only bound or were just closed do not count."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def bind(host: str, port: int, *, setting: str) -> socket.socket:
    """A listening socket on `port`. 0 picks a free port. Raises `SetupError` if the port is taken, or the
    address cannot be used."""
    # IPPROTO_TCP is needed: asyncio sets TCP_NODELAY only then, and answers would else be delayed by 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise SetupError(f"port {port} on {host} is taken: choose another with {setting}") from error
        raise SetupError(f"cannot listen on {host}:{port}: {error} ({setting})") from error
    sock.setblocking(False)
    return sock
