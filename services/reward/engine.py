"""One Stockfish process behind a thin asynchronous UCI pipe.

It knows searches limited by nodes on a cleared hash, which give the same bits whatever was searched
before. It does not queue, retry or restart: the pool does. The engine dies with this process, even by
SIGKILL, because Stockfish quits when its standard input closes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from rookery.errors import EngineFault, SetupError
from rookery.trace import Evaluation

logger = logging.getLogger(__name__)

START_S = 30.0
"""From the start of the process to `readyok`; loading the network on a cold disk takes seconds."""

MAX_OUTPUT_BYTES = 1 << 20
"""A search prints a few kilobytes; an engine that prints this much babbles."""

_USUAL_PLACES = ("/usr/games", "/usr/local/games", "/usr/local/bin", "/opt/homebrew/bin")

# A search that runs out of nodes ends on a line with a bound, not a score: the last exact line counts,
# and its own first move, because `bestmove` may already be another one without a score.
# A handful of nodes may not finish even the first iteration; then the bound is all there is.
_SCORE = re.compile(
    rb"^info .*? score (cp|mate) (-?\d+)( \w+bound)? .*? pv ([a-h][1-8][a-h][1-8][qrbn]?)\b", re.MULTILINE
)
_NODES = re.compile(rb"^info .*? nodes (\d+)", re.MULTILINE)
_NAME = re.compile(rb"^id name (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """A position to search, all of it or only `move`, for a number of nodes."""

    fen: str
    nodes: int
    move: str | None = None

    def command(self) -> bytes:
        only = f" searchmoves {self.move}" if self.move else ""
        return f"ucinewgame\nposition fen {self.fen}\ngo nodes {self.nodes}{only}\n".encode()


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the last finished iteration found: the best move in UCI, its score for the side to move.

    `nodes` is what the whole search took.
    """

    best: str
    evaluation: Evaluation
    nodes: int


def find_engine(path: Path | None) -> Path:
    """The Stockfish binary: `path` when given, else the first on the PATH or in the usual places.

    Raises:
        SetupError: there is none; the message says what to type.
    """
    if path is not None:
        if not os.access(path, os.X_OK) or path.is_dir():
            raise SetupError(f"engine_path (REWARD_ENGINE_PATH) is no program: {str(path)!r}")
        return path
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *_USUAL_PLACES))
    if found := shutil.which("stockfish", path=places):
        return Path(found)
    raise SetupError(
        "no Stockfish on this machine: type `sudo apt-get install stockfish` (Debian, Ubuntu) or "
        "`brew install stockfish` (macOS), or set REWARD_ENGINE_PATH to the binary"
    )


class Engine:
    """A running engine. One search at a time; after any fault it is dead and only good for `close`."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipe: _Pipe) -> None:
        self._transport = transport
        self._pipe = pipe
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)  # noqa: S101 -- opened as a pipe below
        self._stdin = stdin
        self.name = ""

    @classmethod
    async def start(cls, path: Path, *, hash_mb: int) -> Engine:
        """Starts the binary and waits until it is ready.

        Raises:
            EngineFault: it does not start, or does not speak UCI.
        """
        loop = asyncio.get_running_loop()
        try:
            # A session of its own: Ctrl-C in the terminal is for us, who still have requests to answer.
            transport, pipe = await loop.subprocess_exec(
                _Pipe, str(path), stderr=None, start_new_session=True
            )
        except OSError as error:
            raise EngineFault(f"engine {str(path)!r} does not start: {error}") from error
        engine = cls(transport, pipe)
        options = f"setoption name Threads value 1\nsetoption name Hash value {hash_mb}\n"
        try:
            greeting = await engine._ask(f"uci\n{options}isready\n".encode(), b"readyok", timeout_s=START_S)
        except EngineFault:
            await engine.close()
            raise
        name = _NAME.search(greeting)
        engine.name = name[1].decode(errors="replace") if name else path.name
        return engine

    @property
    def pid(self) -> int:
        """Of the engine process."""
        return self._transport.get_pid()

    @property
    def alive(self) -> bool:
        """Whether it can take another search."""
        return not self._pipe.exited.done() and not self._transport.is_closing()

    async def search(self, query: Query, *, timeout_s: float) -> Analysis:
        """Searches `query` on a cleared hash.

        Raises:
            EngineFault: the engine died, hung for `timeout_s` or answered nonsense.
        """
        try:
            output = await self._ask(query.command(), b"bestmove", timeout_s=timeout_s)
            return _analysis(output, query)
        except EngineFault:
            self.kill()
            raise

    async def _ask(self, command: bytes, last_word: bytes, *, timeout_s: float) -> bytes:
        if not self.alive:
            raise EngineFault("the engine died")
        answer = self._pipe.expect(last_word)
        self._stdin.write(command)
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise EngineFault(f"the engine hung: no {last_word.decode()} in {timeout_s:g} s") from None

    def kill(self) -> None:
        """Ends the process at once."""
        if self.alive:
            self._transport.kill()

    async def close(self) -> None:
        """Ends the process and waits until it is gone."""
        self.kill()
        await self._pipe.exited
        self._transport.close()


class _Pipe(asyncio.SubprocessProtocol):
    """Collects the engine's output up to the line that starts with the expected word."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self._answer: asyncio.Future[bytes] | None = None
        self._last_word = b""
        self._buffer = bytearray()

    def expect(self, last_word: bytes) -> asyncio.Future[bytes]:
        self._buffer.clear()
        self._last_word = b"\n" + last_word
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._buffer += data
        if data.endswith(b"\n") and self._last_word in self._buffer:
            self._settle(bytes(self._buffer))
        elif len(self._buffer) > MAX_OUTPUT_BYTES:
            self._settle(EngineFault(f"the engine printed {len(self._buffer)} bytes without an answer"))

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)
        self._settle(EngineFault("the engine died"))

    def _settle(self, result: bytes | EngineFault) -> None:
        if self._answer is None or self._answer.done():
            return
        if isinstance(result, EngineFault):
            self._answer.set_exception(result)
        else:
            self._answer.set_result(result)


def _analysis(output: bytes, query: Query) -> Analysis:
    scores = _SCORE.findall(output)
    if not scores:
        raise EngineFault(f"no score from the engine for {query.fen!r}: {output[-200:]!r}")
    unit, value, _, best = next((score for score in reversed(scores) if not score[2]), scores[-1])
    evaluation = Evaluation(cp=int(value)) if unit == b"cp" else Evaluation(mate=int(value))
    return Analysis(best=best.decode(), evaluation=evaluation, nodes=int(_NODES.findall(output)[-1]))
