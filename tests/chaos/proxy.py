"""A TCP proxy that makes trouble on purpose, from a seed."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FAULTS = ("delay", "cut", "half-close", "lose-reply")
"""A pause before each piece; both sides closed amid a request; the way to the server closed after a request;
the server executes a request, and both sides are closed before its reply arrives."""

SHARE = 0.1
"""Of the requests that a fault strikes, but for `delay`, which strikes all."""
DELAY_S = 0.1


class Proxy:
    """Forwards connections to `target`, a port of this machine."""

    def __init__(self, target: int, *, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._fault = ""
        self.injections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    @contextmanager
    def making(self, fault: str) -> Iterator[None]:
        """Makes this fault during the block."""
        self._fault = fault
        try:
            yield
        finally:
            self._fault = ""

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                lost = threading.Event()
                for pump in (self._requests, self._replies):
                    threading.Thread(target=pump, args=(client, server, lost), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                fault = self._fault
                strikes = bool(fault) and (fault == "delay" or self._random.random() < SHARE)
                self.injections += strikes
                if strikes and fault == "delay":
                    time.sleep(self._random.random() * DELAY_S)
                elif strikes and fault == "cut":
                    server.sendall(data[: self._random.randrange(len(data))])
                    break
                elif strikes and fault == "lose-reply":
                    lost.set()
                server.sendall(data)
                if strikes and fault == "half-close":
                    server.shutdown(socket.SHUT_WR)
                    return
        _close(client, server)

    def _replies(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(65536)) and not lost.is_set():
                client.sendall(data)
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
