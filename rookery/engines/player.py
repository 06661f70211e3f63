"""UCI engines as players: Stockfish, Fairy-Stockfish at Lichess's levels, any other."""

import asyncio
import functools
import hashlib
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import chess
import chess.engine

from rookery.devices import usable_cores
from rookery.engines.engine import find_engine
from rookery.episodes import Opponent
from rookery.errors import EngineFault, InvalidInput, SetupError
from rookery.files import expanded
from rookery.trace import Outcome

LICHESS_LEVELS: tuple[tuple[int, int], ...] = (
    (-9, 5), (-5, 5), (-1, 5), (3, 5), (7, 5), (11, 8), (16, 13), (20, 22),
)  # fmt: skip
"""Skill and depth of Lichess's levels 1 to 8 (lichess-org/fishnet, src/api.rs). Lichess also limits the time,
which would make the strength depend on the machine."""

START_S = 120.0
"""Time limit from the start of an engine to its options. Loading the network takes long on a busy machine."""
MOVE_S = 600.0
"""An engine that takes longer over one move is counted as hung."""

_EXACT_SCORE = re.compile(rb"info .*\bscore (cp|mate) (-?\d++)(?! (?:lower|upper)bound)")

FULL_SKILL = 20
"""Of Stockfish and Fairy-Stockfish."""

_STOP_S = 3.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A player's answer to one position of a game.

    Attributes:
        move: the move, legal in the position; None unless `outcome` is `Outcome.LEGAL`.
        outcome: what the answer is, in the reward parser's terms. Engines always answer with a legal move.
        text: what a model wrote, reasoning included; empty for the others.
        tokens: the number of tokens that a model wrote; 0 if the endpoint does not tell.
        score: the evaluation of the position by an engine, or by a model that writes one; else None.
        seconds: how long the player took.
        failed: the outcomes of wrong answers before this one, if the player may correct itself.
    """

    move: chess.Move | None
    outcome: Outcome
    text: str = ""
    tokens: int = 0
    score: chess.engine.PovScore | None = None
    seconds: float = 0.0
    failed: tuple[Outcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """What an engine says of itself."""

    path: Path
    name: str
    options: Mapping[str, chess.engine.Option]
    sha256: str = ""
    """Of the file that the player names: other engines may have the same `name`."""


class EnginePlayer:
    """A UCI engine. Each concurrent game has a process of its own, at most one for each core of the machine.

    The engine forgets everything before each move (`ucinewgame`), so a move depends only on the position and
    the game before it, not on other games or on which process is asked. `reproducible` is False for an engine
    that draws from a generator seeded by the clock, as Stockfish does below its full skill.
    """

    def __init__(
        self,
        name: str,
        binary: Binary,
        *,
        limit: chess.engine.Limit,
        options: Mapping[str, chess.engine.ConfigValue],
        reproducible: bool,
    ) -> None:
        self.name = name
        self._binary, self._limit, self._reproducible = binary, limit, reproducible
        playing = {"UCI_AnalyseMode": False} if "UCI_AnalyseMode" in binary.options else {}
        self._options = _checked_options({**playing, **options}, binary)
        self._slots = asyncio.Semaphore(usable_cores())
        self._idle: list[_Process] = []

    def describe(self) -> Mapping[str, object]:
        limits = {"nodes": self._limit.nodes, "depth": self._limit.depth, "seconds": self._limit.time}
        return {
            "kind": "engine",
            "engine": self._binary.name,
            **({"sha256": self._binary.sha256} if self._binary.sha256 else {}),
            **{key: value for key, value in limits.items() if value is not None},
            "options": dict(self._options),
            "reproducible": self._reproducible,
        }

    async def play(
        self,
        board: chess.Board,
        *,
        seed: int,
        limit: chess.engine.Limit | None = None,
        options: Mapping[str, chess.engine.ConfigValue] = MappingProxyType({}),
    ) -> Reply:
        """The engine's move. See `Player.play`. A `limit` and `options` of this move replace the player's;
        the process keeps the options.

        Raises `EngineFault` if the engine died, hung, or answered with no legal move; the next call starts
        another. Raises `InvalidInput` if it has not such an option."""
        del seed
        options = _checked_options(options, self._binary)
        started = time.monotonic()
        async with self._slots:
            process = self._idle.pop() if self._idle else await self._start()
            try:
                async with asyncio.timeout(MOVE_S):
                    process.protocol.exact = None
                    # A new game each time, so that python-chess sends `ucinewgame`.
                    result = await process.protocol.play(
                        board, limit or self._limit, game=object(), options=options
                    )
            except (chess.engine.EngineError, TimeoutError) as error:
                await process.kill()
                raise EngineFault(
                    f"{self.name} over {board.fen()!r}: {str(error) or 'no move in time'}"
                ) from error
            except BaseException:
                await process.kill()
                raise
            self._idle.append(process)
        if result.move is None:
            raise EngineFault(f"{self.name} has no move in {board.fen()!r}")
        exact = process.protocol.exact
        score = chess.engine.PovScore(exact, board.turn) if exact is not None else None
        return Reply(result.move, Outcome.LEGAL, score=score, seconds=time.monotonic() - started)

    async def _start(self) -> "_Process":
        path = str(self._binary.path)
        # A process group of its own, so that Ctrl-C does not end the engine in the middle of a move.
        spawning = asyncio.ensure_future(_Protocol.popen(path, setpgrp=True))
        # Cancelled half-way, asyncio would wait for ever for the pipes of the new process.
        try:
            process = _Process(*await asyncio.shield(spawning))
        except asyncio.CancelledError:
            await _Process(*await spawning).kill()
            raise
        except OSError as error:
            raise EngineFault(f"engine {path!r} does not start: {error}") from error
        try:
            async with asyncio.timeout(START_S):
                await process.protocol.initialize()
                await process.protocol.configure(self._options)
        except (chess.engine.EngineError, TimeoutError) as error:
            await process.kill()
            raise EngineFault(f"engine {path!r} does not start: {_reason(error)}") from error
        except BaseException:
            await process.kill()
            raise
        return process

    async def close(self) -> None:
        """Ends the idle processes. The others end with their move."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(process.kill() for process in idle))


def stockfish_player(
    name: str,
    *,
    limit: chess.engine.Limit,
    skill: int | None = None,
    elo: int | None = None,
    hash_mb: int = 1,
    path: Path | None = None,
) -> EnginePlayer:
    """Stockfish, with one thread. Raises `SetupError` if there is none."""
    options: dict[str, chess.engine.ConfigValue] = {"Threads": 1, "Hash": hash_mb}
    if skill is not None:
        options["Skill Level"] = skill
    if elo is not None:
        options |= {"UCI_LimitStrength": True, "UCI_Elo": elo}
    full = elo is None and skill in (None, FULL_SKILL) and not limit.time
    return EnginePlayer(name, find_binary(path), limit=limit, options=options, reproducible=full)


def uci_player(
    name: str,
    path: Path,
    *,
    limit: chess.engine.Limit,
    options: Mapping[str, chess.engine.ConfigValue] = MappingProxyType({}),
) -> EnginePlayer:
    """Any UCI engine, with one thread unless an option says otherwise. Raises `SetupError` if it is none."""
    binary = find_binary(path, setting="uci:PATH")
    single: dict[str, chess.engine.ConfigValue] = {"Threads": 1} if "Threads" in binary.options else {}
    return EnginePlayer(name, binary, limit=limit, options={**single, **options}, reproducible=False)


def engine_player(opponent: Opponent) -> EnginePlayer:
    """The engine that plays in games. Raises `SetupError` if it is not on this machine, or has not such an
    option."""
    limit = chess.engine.Limit(nodes=opponent.nodes, depth=opponent.depth)
    try:
        if opponent.kind == "uci":
            return uci_player(opponent.path, Path(opponent.path), limit=limit)
        return stockfish_player("stockfish", limit=limit, skill=opponent.skill, elo=opponent.elo)
    except (InvalidInput, SetupError) as error:
        raise SetupError(f"opponent={opponent.kind}: {error}") from error


class _Protocol(chess.engine.UciProtocol):
    """Remembers the last exact score. That of python-chess may be a bound: a node limit often leaves one."""

    exact: chess.engine.Score | None = None
    _rest = b""

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if fd == 1 and isinstance(data, bytes):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if match := _EXACT_SCORE.match(line):
                    number = int(match[2])
                    self.exact = chess.engine.Cp(number) if match[1] == b"cp" else chess.engine.Mate(number)
        super().pipe_data_received(fd, data)


@dataclass(frozen=True, slots=True)
class _Process:
    transport: asyncio.SubprocessTransport
    protocol: _Protocol

    async def kill(self) -> None:
        if not self.protocol.returncode.done():
            with suppress(ProcessLookupError):
                self.transport.kill()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.protocol.returncode), _STOP_S)
        self.transport.close()


@functools.cache
def inspect(path: Path) -> Binary:
    """Starts the engine once and reads its name and options. Raises `SetupError` if it does not start, or
    does not speak UCI."""
    try:
        with chess.engine.SimpleEngine.popen_uci(str(path), timeout=START_S, setpgrp=True) as engine:
            return Binary(path, engine.id.get("name", path.name), dict(engine.options))
    except (OSError, chess.engine.EngineError, TimeoutError) as error:
        raise SetupError(f"{str(path)!r} is not a UCI engine: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(error) or f"no uciok in {START_S:g} s"  # a TimeoutError says nothing


def find_binary(path: Path | None, *, setting: str = "path=", engine: str = "stockfish") -> Binary:
    """The engine at `path`, or else the one of this machine. Raises `SetupError` if there is none."""
    path = expanded(path) if path else None
    binary = inspect(find_engine(path, setting=setting, engine=engine))
    return replace(binary, sha256=hashlib.sha256(path.read_bytes()).hexdigest()) if path else binary


def _checked_options(
    options: Mapping[str, chess.engine.ConfigValue], binary: Binary
) -> dict[str, chess.engine.ConfigValue]:
    """The options with the engine's spelling and types."""
    options_by_name = {name.lower(): option for name, option in binary.options.items()}
    checked = {}
    for name, value in options.items():
        option = options_by_name.get(name.lower())
        if option is None or option.is_managed():
            settable = ", ".join(o.name for o in options_by_name.values() if not o.is_managed())
            raise InvalidInput(f"{binary.name} has no option {name!r} to set: it has {settable}")
        try:
            checked[option.name] = option.parse(value)
        except (chess.engine.EngineError, ValueError) as error:
            bounds = f", which is from {option.min} to {option.max}" if option.type == "spin" else ""
            raise InvalidInput(
                f"{value!r} is not a value of {binary.name}'s {option.name!r}{bounds}"
            ) from error
    return checked
