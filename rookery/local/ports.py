"""Ports of a run: the default when it is free, another when nobody asked for that one."""

import socket
from collections.abc import Collection

from rookery.errors import SetupError


def choose_port(host: str, default: int, *, asked: int | None, setting: str, taken: Collection[int]) -> int:
    """A port that can be listened on now; `taken` ones are promised to someone else.

    Raises:
        SetupError: the one that was asked for is in use; the message names the setting.
    """
    if asked is not None:
        if asked in taken or not is_free(host, asked):
            raise SetupError(f"port {asked} on {host} is taken: choose another with {setting}")
        return asked
    if default not in taken and is_free(host, default):
        return default
    while True:
        with socket.socket() as sock:
            sock.bind((host, 0))
            port = int(sock.getsockname()[1])
        if port not in taken:
            return port


def is_free(host: str, port: int) -> bool:
    """Whether a service could listen there now."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
        return True
