"""Splits the output of an engine process into answers.

The output is read from time to time, instead of waking up Python for each line that a search prints.
"""

import asyncio
import os
from collections.abc import Callable

MAX_OUTPUT_BYTES = 1 << 20
"""Maximum output of one search. A normal search prints a few kilobytes; more than this is an engine fault."""

_EOF_S = 0.5
_READ_BYTES = 1 << 18


class Pipe(asyncio.SubprocessProtocol):
    """Splits the engine's output after each line that starts with the expected word."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self.lost = False
        """Whether the process has ended and all its output has been processed."""
        self.read_pause_s: Callable[[], float] = lambda: 0.0
        """Returns how long to wait before the next read; 0 to read the output as it arrives."""
        self.on_overflow: Callable[[int], None] = lambda size: None
        """Called with the number of bytes when there are too many without an answer."""
        self._stdout: asyncio.ReadTransport | None = None
        self._fd = -1
        self._paused = False
        self._buffer = bytearray()
        self._end_of_answer = b""
        self._on_answer: Callable[[bytes], None] = lambda output: None
        self._on_end: Callable[[], None] = lambda: None

    def listen(
        self, end_of_answer: bytes, on_answer: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        """Sets the callbacks: `on_answer` for each answer, and `on_end` once, when the process has ended. An
        answer ends with the line that contains `end_of_answer`."""
        self._end_of_answer, self._on_answer, self._on_end = end_of_answer, on_answer, on_end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101 -- what subprocess_exec makes
        stdout = transport.get_pipe_transport(1)
        assert isinstance(stdout, asyncio.ReadTransport)  # noqa: S101 -- opened as a pipe
        self._stdout, self._fd = stdout, stdout.get_extra_info("pipe").fileno()

    def pause(self) -> None:
        """Pauses reading for `read_pause_s()` seconds, if that is more than 0."""
        if self._paused or self._stdout is None or (read_pause_s := self.read_pause_s()) <= 0.0:
            return
        self._paused = True
        self._stdout.pause_reading()
        self._loop.call_later(read_pause_s, self._read_now)

    def _read_now(self) -> None:
        """Reads the available output directly, without the event loop, and pauses again if there is time."""
        assert self._stdout is not None  # noqa: S101 -- `pause` checks
        if self.lost or self._stdout.is_closing():
            return
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            data = None
        if data:
            self._take(data)
        read_pause_s = 0.0 if data == b"" or self.lost else self.read_pause_s()
        if read_pause_s > 0.0:
            self._loop.call_later(read_pause_s, self._read_now)
        else:
            self._paused = False
            self._stdout.resume_reading()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._take(data)
        self.pause()

    def _take(self, data: bytes) -> None:
        self._buffer += data
        while (word := self._buffer.find(self._end_of_answer)) >= 0:
            end = self._buffer.find(b"\n", word + 1)
            if end < 0:
                break
            answer = bytes(self._buffer[: end + 1])
            del self._buffer[:end]  # keeps the newline, because the expected word starts with one
            self._on_answer(answer)
        if len(self._buffer) > MAX_OUTPUT_BYTES:
            self.on_overflow(len(self._buffer))
            self._buffer.clear()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        # Wait until the output has ended and the process has exited: before, an answer may still be in the
        # pipe, and the exit status is unknown. Else `Engine.close` might reap the process before asyncio.
        if fd == 1:
            self.exited.add_done_callback(lambda _: self._end())

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)
        self._loop.call_later(_EOF_S, self._end)  # in case a child of the engine keeps the pipe open

    def _end(self) -> None:
        if not self.lost:
            self.lost = True
            self._on_end()
