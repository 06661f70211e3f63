"""One Stockfish process behind a thin asynchronous pipe.

Searches may be written ahead: the engine goes from one to the next without waiting for Python. It does
not queue, retry or restart: the pool does. The engine dies with this process, even by SIGKILL, because
Stockfish quits when its standard input closes.
"""

import asyncio
import re
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rookery.engines.pipe import Pipe
from rookery.errors import EngineFault
from rookery.uci import Analysis, Query, analysis_of

START_S = 30.0
"""From the start of the process to its first `bestmove`; loading the network on a cold disk takes seconds."""

AHEAD_S = 0.03
"""Searches are written ahead for about this long: the longest that Python may be busy elsewhere."""

SLACK_S = 0.008
"""Work that is left to an engine when its output is read: searches differ, and timers are late."""

LONG_S = 0.05
"""Nothing is written behind a search this long: it could not be stopped any more."""

SPARE = 2
"""Searches that wait in an engine even where that is more work, up to `LONG_S`: some take half their time."""

MIN_NAP_S, MAX_NAP_S = 0.001, 0.012
"""How long finished work may lie unread."""

MAX_AHEAD = 24
"""Searches in the pipe of one engine: each is 150 bytes, and a pipe holds 4,096 at least."""

_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of an engine that somebody else ended: no position makes Stockfish do that to itself."""


_OPTIONS = "setoption name Threads value 1\nsetoption name UCI_ShowWDL value true\n"
_LAST_WORD = b"\nbestmove "
_TRIAL = "position startpos\ngo nodes 1\n"  # a Stockfish without its network greets well and dies of this
_NAME = re.compile(rb"^id name (.+?)\s*$", re.MULTILINE)


class Search(Protocol):
    """A query on its way through an engine."""

    query: Query

    def done(self, result: Analysis | EngineFault | None) -> None:
        """Called once: with the answer, the fault, or None where nothing is to be learnt about the query.

        The engine died before it came to it, was ended by somebody else, or heard that nobody waits.
        """


class Engine:
    """A running engine: searches are answered in order. After a fault it is only good for `close`."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipe: Pipe) -> None:
        self._transport = transport
        self._pipe = pipe
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)  # noqa: S101 -- opened as a pipe below
        self._stdin = stdin
        pipe.nap_s = self._nap_s
        pipe.overflowed = lambda size: self.kill(f"the engine printed {size} bytes without an answer")
        self._searches: deque[Search] = deque()
        self._abandoned: Search | None = None
        self._nodes = 0  # of all of them
        self._unsent = bytearray()
        self._head_since = 0.0
        self.s_per_node = 1e-6
        """Of the searches of late."""
        self._options: tuple[int, bool] = (1, False)
        self._fault = "the engine died"
        self._ends = False
        self.name = ""
        self.died: Callable[[], None] = lambda: None
        """Called when the process is gone and every search it still had is done."""

    @classmethod
    async def start(cls, path: Path, *, hash_mb: int) -> "Engine":
        """Starts the binary and waits until it has answered a first search.

        Raises:
            EngineFault: it does not start, or does not speak UCI.
        """
        loop = asyncio.get_running_loop()
        pipe = Pipe()
        try:
            # A session of its own: Ctrl-C in the terminal is for us, who still have requests to answer.
            transport, _ = await loop.subprocess_exec(
                lambda: pipe, str(path), stderr=None, start_new_session=True
            )
        except OSError as error:
            raise EngineFault(f"engine {str(path)!r} does not start: {error}") from error
        engine = cls(transport, pipe)
        try:
            output = await asyncio.wait_for(engine._greet(hash_mb), START_S)
        except (TimeoutError, EngineFault) as error:
            await engine.close()
            why = str(error) or f"no bestmove in {START_S:g} s"
            raise EngineFault(f"engine {str(path)!r} does not speak UCI: {why}") from None
        except asyncio.CancelledError:
            await engine.close()
            raise
        name = _NAME.search(output)
        engine.name = name[1].decode(errors="replace") if name else path.name
        pipe.listen(_LAST_WORD, engine._answered, engine._lost)
        return engine

    async def _greet(self, hash_mb: int) -> bytes:
        greeting: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def hear(output: bytes | None) -> None:
            if not greeting.done():
                greeting.set_result(output)

        self._pipe.listen(_LAST_WORD, hear, lambda: hear(None))
        hash_size = f"setoption name Hash value {hash_mb}\n"
        self._stdin.write(f"uci\n{_OPTIONS}{hash_size}isready\n{_TRIAL}".encode())
        output = await greeting
        if output is None:
            raise EngineFault(self._fault)
        return output

    @property
    def pid(self) -> int:
        """Of the engine process."""
        return self._transport.get_pid()

    @property
    def gone(self) -> bool:
        """Whether the process has ended and `died` was called."""
        return self._pipe.lost

    @property
    def searches(self) -> int:
        """Searches in the pipe, the running one included."""
        return len(self._searches)

    @property
    def has_room(self) -> bool:
        """Whether another search should be written now."""
        count = len(self._searches)
        work_s = self._nodes * self.s_per_node
        if self._ends or count >= MAX_AHEAD:
            return False
        return work_s < AHEAD_S or count == 0 or (count <= SPARE and work_s < LONG_S)

    @property
    def head_age_s(self) -> float:
        """How long the running search has taken so far; 0 when there is none."""
        return time.perf_counter() - self._head_since if self._searches else 0.0

    def submit(self, search: Search) -> None:
        """Writes `search` behind those in the pipe."""
        if not self._searches:
            self._head_since = time.perf_counter()
        self._searches.append(search)
        self._nodes += search.query.nodes
        self._say(self._command(search.query))

    def _say(self, commands: bytes) -> None:
        """Gathers what one turn of the event loop has to say: each write wakes the engine."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send)
        self._unsent += commands

    def _send(self) -> None:
        if not self._ends:
            self._stdin.write(bytes(self._unsent))
        self._unsent.clear()
        self._pipe.rest()

    def abandon(self, search: Search) -> None:
        """Nobody waits for `search` any more: ends it early, if the engine can still be told."""
        if len(self._searches) == 1 and self._searches[0] is search:
            self._abandoned = search
            self._say(b"stop\n")

    def kill(self, why: str = "the engine died") -> None:
        """Ends the process at once; the running search fails because of `why`."""
        self._fault, self._ends = why, True
        if self._transport.get_returncode() is None and not self._transport.is_closing():
            self._transport.kill()

    async def close(self) -> None:
        """Ends the process and waits until it is gone."""
        self.kill()
        await self._pipe.exited
        self._transport.close()

    def _command(self, query: Query) -> bytes:
        options = ""
        if self._options != (query.lines, query.chess960):
            self._options = query.lines, query.chess960
            options = query.options
        # `ucinewgame` waits for the search before it, so nothing here disturbs what runs.
        return f"ucinewgame\n{options}{query.go}".encode()

    def _nap_s(self) -> float:
        """How long the output may be left alone: half the work in the pipe, or 0 to hear each line.

        A search prints a line per iteration: to wake up for each would cost Python more than the search
        costs the engine.
        """
        if not self._searches:
            return 0.0
        work_s = max(0.0, self._nodes * self.s_per_node - self.head_age_s)
        if len(self._searches) > 1:
            return min(MAX_NAP_S, max(MIN_NAP_S, min(0.5 * work_s, work_s - SLACK_S)))
        return min(MAX_NAP_S, work_s / 16) if work_s > 16 * MIN_NAP_S else 0.0

    def _answered(self, output: bytes) -> None:
        if not self._searches:
            self.kill("the engine answers what nobody asked")
            return
        search = self._searches.popleft()
        self._nodes -= search.query.nodes
        now = time.perf_counter()
        seconds, self._head_since = now - self._head_since, now
        if search is self._abandoned:  # too soon for a score, perhaps, and no measure of the engine's speed
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

    def _lost(self) -> None:
        innocent = not self._ends and self._transport.get_returncode() in _OUTSIDE
        self._ends = True
        self._transport.close()
        # Whoever killed it for another search's sake left the fault empty.
        if self._searches and self._fault and not innocent:
            search = self._searches.popleft()
            search.done(EngineFault(f"{self._fault} over {search.query}"))
        while self._searches:
            self._searches.popleft().done(None)
        self.died()
