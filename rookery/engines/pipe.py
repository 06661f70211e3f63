"""The output of an engine process, cut into answers.

Python looks at it now and then instead of waking up for every line that a search prints.
"""

import asyncio
import os
from collections.abc import Callable

MAX_OUTPUT_BYTES = 1 << 20
"""A search prints a few kilobytes; an engine that prints this much babbles."""

_EOF_S = 0.5
_READ_BYTES = 1 << 18


class Pipe(asyncio.SubprocessProtocol):
    """Cuts the engine's output at the lines that start with the expected word."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self.lost = False
        """Whether the last word has been read."""
        self.nap_s: Callable[[], float] = lambda: 0.0
        """How long to leave the output alone from now on."""
        self.overflowed: Callable[[int], None] = lambda size: None
        """Called with the bytes that came without an answer, when there are too many."""
        self._stdout: asyncio.ReadTransport | None = None
        self._fd = -1
        self._resting = False
        self._buffer = bytearray()
        self._last_word = b""
        self._answered: Callable[[bytes], None] = lambda output: None
        self._lost: Callable[[], None] = lambda: None

    def listen(self, last_word: bytes, answered: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """From now on every answer ends with a line that holds `last_word`."""
        self._last_word, self._answered, self._lost = last_word, answered, lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101 -- what subprocess_exec makes
        stdout = transport.get_pipe_transport(1)
        assert isinstance(stdout, asyncio.ReadTransport)  # noqa: S101 -- opened as a pipe
        self._stdout, self._fd = stdout, stdout.get_extra_info("pipe").fileno()

    def rest(self) -> None:
        """Leaves the output alone for a while, if there is time."""
        if self._resting or self._stdout is None or (nap_s := self.nap_s()) <= 0.0:
            return
        self._resting = True
        self._stdout.pause_reading()
        self._loop.call_later(nap_s, self._look)

    def _look(self) -> None:
        """Reads what has come meanwhile, without asking the event loop to watch for it."""
        assert self._stdout is not None  # noqa: S101 -- `rest` looks
        if self.lost or self._stdout.is_closing():
            return
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            data = None
        if data:
            self._take(data)
        nap_s = 0.0 if data == b"" or self.lost else self.nap_s()
        if nap_s > 0.0:
            self._loop.call_later(nap_s, self._look)
        else:
            self._resting = False
            self._stdout.resume_reading()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._take(data)
        self.rest()

    def _take(self, data: bytes) -> None:
        self._buffer += data
        while (word := self._buffer.find(self._last_word)) >= 0:
            end = self._buffer.find(b"\n", word + 1)
            if end < 0:
                break
            answer = bytes(self._buffer[: end + 1])
            del self._buffer[:end]  # its newline stays: it stands before the next line
            self._answered(answer)
        if len(self._buffer) > MAX_OUTPUT_BYTES:
            self.overflowed(len(self._buffer))
            self._buffer.clear()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        # The searches end when its output has and it is gone: until then an answer may lie in the pipe, and
        # nobody knows what it died of. `Engine.close` would also reap the process under asyncio's feet.
        if fd == 1:
            self.exited.add_done_callback(lambda _: self._lose())

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)
        self._loop.call_later(_EOF_S, self._lose)  # a child of its may hold the pipe open

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._lost()
