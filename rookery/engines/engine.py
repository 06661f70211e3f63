"""One Stockfish process, driven through asynchronous pipes.

Several searches can be written to the engine at once, so that it need not wait for Python between them. The
pool does the queueing, retries and restarts. The engine ends when this process ends, even by SIGKILL, because
Stockfish quits when its standard input is closed.
"""

import asyncio
import os
import re
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rookery.engines.pipe import Pipe
from rookery.errors import EngineFault, SetupError
from rookery.uci import Analysis, Query, analysis_of

START_S = 120.0
"""Time limit from the start of the process to its first `bestmove`. Loading the network takes long on a
busy machine."""

AHEAD_S = 0.03
"""About how much work, in seconds, is written ahead: as long as Python may be busy with other things."""

SLACK_S = 0.008
"""How much work an engine should still have when its output is read, as estimates and timers are inexact."""

LONG_S = 0.05
"""Nothing is written behind searches this long, because a search with another behind it cannot be stopped."""

MIN_QUEUED = 2
"""This many searches wait in an engine even if they exceed `AHEAD_S`, up to `LONG_S`: some take half as long
as estimated."""

MIN_PAUSE_S, MAX_PAUSE_S = 0.001, 0.012
"""Bounds of the time between two reads of the output."""

MAX_AHEAD = 24
"""Maximum searches in the pipe of one engine. Each has about 150 bytes, and a pipe holds at least 4,096."""

_KILLED_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of an engine that was killed from outside. No position can cause them."""

_USUAL_PLACES = ("/usr/games", "/usr/local/games", "/usr/local/bin", "/opt/homebrew/bin")
_OPTIONS = "setoption name Threads value 1\nsetoption name UCI_ShowWDL value true\n"
_END_OF_ANSWER = b"\nbestmove "
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Lets the engine's tables of move history, 10 MB that each search clears, lie in huge pages."""

_TRIAL_SEARCH = "position startpos\ngo nodes 1\n"
"""Without its network, Stockfish dies only on its first search."""
_NAME = re.compile(rb"^id name (.*\S)", re.MULTILINE)


def find_engine(path: Path | None, *, setting: str, engine: str = "stockfish") -> Path:
    """The engine's binary: `path` if given, else the first on the PATH or in the usual directories. Raises
    `SetupError` if there is none; the message names `setting` or says how to install the engine."""
    if path is not None:
        if not os.access(path, os.X_OK) or path.is_dir():
            raise SetupError(f"{setting} is not a program: {str(path)!r}")
        return path.absolute()  # one without a slash would be looked up on the PATH
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *_USUAL_PLACES))
    if program := shutil.which(engine, path=places):
        return Path(program)
    raise SetupError(
        f"no {engine} on this machine: type `sudo apt-get install {engine}` (Debian, Ubuntu) or "
        f"`brew install {engine}` (macOS), or set {setting} to the binary"
    )


class Search(Protocol):
    """A query that is submitted to an engine."""

    query: Query

    def done(self, result: Analysis | EngineFault | None) -> None:
        """Called once, with the answer, the fault of this search, or None. None means that the engine died
        before it reached the query, was killed from outside, or that the search was abandoned."""


class Engine:
    """A running engine. Searches are answered in order. After a fault, only `close` may be called."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipe: Pipe) -> None:
        self._transport = transport
        self._pipe = pipe
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)  # noqa: S101 -- opened as a pipe below
        self._stdin = stdin
        pipe.read_pause_s = self._read_pause_s
        pipe.on_overflow = lambda size: self.kill(f"the engine printed {size} bytes without an answer")
        self._searches: deque[Search] = deque()
        self._abandoned: Search | None = None
        self._nodes = 0  # the sum of all searches in the pipe
        self._unsent = bytearray()
        self._running_since = 0.0
        self.s_per_node = 1e-6
        """Moving average over recent searches."""
        self._options: tuple[int, bool] = (1, False)
        self._fault = "the engine died"
        self._ending = False
        self.name = ""
        self.died: Callable[[], None] = lambda: None
        """Called when the process has ended and `done` was called for all its searches."""

    @classmethod
    async def start(cls, path: Path, *, hash_mb: int) -> "Engine":
        """Starts the binary and waits until it has answered a trial search. Raises `EngineFault` if the
        binary does not start, or does not speak UCI."""
        loop = asyncio.get_running_loop()
        pipe = Pipe()
        try:
            # A session of its own: Ctrl-C must not end the engine while this process finishes its requests.
            transport, _ = await loop.subprocess_exec(
                lambda: pipe, str(path), stderr=None, start_new_session=True, env=_HUGE_PAGES | os.environ
            )
        except OSError as error:
            raise EngineFault(f"engine {str(path)!r} does not start: {error}") from error
        engine = cls(transport, pipe)
        try:
            output = await asyncio.wait_for(engine._try_search(hash_mb), START_S)
        except (TimeoutError, EngineFault) as error:
            await engine.close()
            why = str(error) or f"no bestmove in {START_S:g} s"
            raise EngineFault(f"engine {str(path)!r} does not speak UCI: {why}") from None
        except asyncio.CancelledError:
            await engine.close()
            raise
        name = _NAME.search(output)
        engine.name = name[1].decode(errors="replace") if name else path.name
        pipe.listen(_END_OF_ANSWER, engine._on_answer, engine._on_end)
        return engine

    async def _try_search(self, hash_mb: int) -> bytes:
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def receive(output: bytes | None) -> None:
            if not answer.done():
                answer.set_result(output)

        self._pipe.listen(_END_OF_ANSWER, receive, lambda: receive(None))
        hash_size = f"setoption name Hash value {hash_mb}\n"
        self._stdin.write(f"uci\n{_OPTIONS}{hash_size}isready\n{_TRIAL_SEARCH}".encode())
        output = await answer
        if output is None:
            raise EngineFault(self._fault)
        return output

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    @property
    def ended(self) -> bool:
        """Whether the process has ended and `died` was called."""
        return self._pipe.lost

    @property
    def searches(self) -> int:
        """The number of searches in the pipe, including the running one."""
        return len(self._searches)

    @property
    def has_room(self) -> bool:
        """Whether another search should be written now."""
        count = len(self._searches)
        work_s = self._nodes * self.s_per_node
        if self._ending or count >= MAX_AHEAD:
            return False
        return work_s < AHEAD_S or count == 0 or (count <= MIN_QUEUED and work_s < LONG_S)

    @property
    def running_s(self) -> float:
        """How long the running search has taken so far, or 0 if there is none."""
        return time.perf_counter() - self._running_since if self._searches else 0.0

    def submit(self, search: Search) -> None:
        """Adds `search` to the pipe, behind those already there."""
        if not self._searches:
            self._running_since = time.perf_counter()
        self._searches.append(search)
        self._nodes += search.query.nodes
        self._write(self._command(search.query))

    def _write(self, commands: bytes) -> None:
        """Collects the commands of one turn of the event loop in a single write: writes wake the engine."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send)
        self._unsent += commands

    def _send(self) -> None:
        if not self._ending:
            self._stdin.write(bytes(self._unsent))
        self._unsent.clear()
        self._pipe.pause()

    def abandon(self, search: Search) -> None:
        """Stops `search` early, because its result is not needed, if it is the only one in the pipe."""
        if len(self._searches) == 1 and self._searches[0] is search:
            self._abandoned = search
            self._write(b"stop\n")

    def kill(self, why: str = "the engine died") -> None:
        """Kills the process. The running search fails with `why` as the reason."""
        self._fault, self._ending = why, True
        if self._transport.get_returncode() is None and not self._transport.is_closing():
            self._transport.kill()

    async def close(self) -> None:
        """Kills the process and waits for its exit."""
        self.kill()
        await self._pipe.exited
        self._transport.close()

    def _command(self, query: Query) -> bytes:
        options = ""
        if self._options != (query.lines, query.chess960):
            self._options = query.lines, query.chess960
            options = query.options
        # Stockfish waits for the running search before `ucinewgame`, so these commands do not disturb it.
        return f"ucinewgame\n{options}{query.go}".encode()

    def _read_pause_s(self) -> float:
        """How long to wait before the next read: about half the work in the pipe, or 0 to read each line.

        A search prints a line per iteration. Waking up for each line would cost Python more time than the
        search costs the engine.
        """
        if not self._searches:
            return 0.0
        work_s = max(0.0, self._nodes * self.s_per_node - self.running_s)
        if len(self._searches) > 1:
            return min(MAX_PAUSE_S, max(MIN_PAUSE_S, min(0.5 * work_s, work_s - SLACK_S)))
        return min(MAX_PAUSE_S, work_s / 16) if work_s > 16 * MIN_PAUSE_S else 0.0

    def _on_answer(self, output: bytes) -> None:
        if not self._searches:
            self.kill("the engine answered without a search")
            return
        search = self._searches.popleft()
        self._nodes -= search.query.nodes
        now = time.perf_counter()
        seconds, self._running_since = now - self._running_since, now
        if search is self._abandoned:  # it may have no score, and its time says nothing about the speed
            search.done(None)
            return
        self.s_per_node += 0.05 * (seconds / search.query.nodes - self.s_per_node)
        try:
            analysis = analysis_of(output, search.query)
        except EngineFault as fault:
            self.kill(why="")
            search.done(fault)
            return
        search.done(analysis)

    def _on_end(self) -> None:
        killed_from_outside = not self._ending and self._transport.get_returncode() in _KILLED_FROM_OUTSIDE
        self._ending = True
        self._transport.close()
        # The fault is empty if the engine was killed because of a search that is already done.
        if self._searches and self._fault and not killed_from_outside:
            search = self._searches.popleft()
            search.done(EngineFault(f"{self._fault} over {search.query}"))
        while self._searches:
            self._searches.popleft().done(None)
        self.died()
