"""What a GUI sends: parses `position`, `go` and `setoption`, keeps the options, runs one `go`."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import chess

from rookery.errors import InvalidInput
from rookery.fen import read_fen

_NUMBERS = frozenset(
    {"wtime", "btime", "winc", "binc", "movestogo", "movetime", "nodes", "depth", "mate", "perft"}
)
_FLAGS = frozenset({"infinite", "ponder"})
_PART = 4
"""A move may take a quarter of the clock: more is rarely needed, and a player cannot be hurried."""


@dataclass(frozen=True, slots=True)
class Go:
    """A `go` command. Times are in milliseconds. A player searches as its spec says, so the limits `nodes`,
    `depth` and `mate` are accepted and not used."""

    wtime: int | None = None
    btime: int | None = None
    winc: int = 0
    binc: int = 0
    movestogo: int | None = None
    movetime: int | None = None
    infinite: bool = False
    ponder: bool = False
    searchmoves: tuple[str, ...] = ()

    def budget_s(self, turn: chess.Color, *, overhead_ms: int) -> float | None:
        """How long the move may take, in seconds; None without a limit.

        >>> Go(movetime=1000).budget_s(chess.WHITE, overhead_ms=100)
        0.9
        >>> Go(wtime=60_000, winc=1000).budget_s(chess.WHITE, overhead_ms=0)
        16.0
        >>> Go(wtime=100).budget_s(chess.WHITE, overhead_ms=100)
        0.0125
        """
        if self.movetime is not None:
            limit_ms = max(0, self.movetime)
        else:
            clock, increment = (self.wtime, self.winc) if turn else (self.btime, self.binc)
            if clock is None:
                return None
            left = max(0, clock)  # some runners send a negative clock
            part = min(_PART, self.movestogo or _PART)
            limit_ms = min(left // part + increment, left)
        return max(limit_ms - overhead_ms, limit_ms / 2) / 1000


def parse_go(words: Sequence[str]) -> Go:
    """Reads the words after `go`. What is unknown or no number is ignored, as the protocol demands."""
    values: dict[str, int | bool] = {}
    moves: list[str] = []
    keyword = ""
    for word in words:
        if word in _NUMBERS or word in _FLAGS or word == "searchmoves":
            keyword = word
            if word in _FLAGS:
                values[word] = True
        elif keyword == "searchmoves":
            moves.append(word)
        elif keyword in Go.__slots__ and word.removeprefix("-").isdecimal():
            values[keyword] = int(word)
    return Go(**values, searchmoves=tuple(moves))  # type: ignore[arg-type]


def parse_position(words: Sequence[str]) -> chess.Board:
    """The board that the words after `position` describe, with the moves on its stack. Raises `InvalidInput`
    if the FEN cannot be read, the position is impossible, or a move is illegal."""
    start, moves = list(words), list[str]()
    if "moves" in start:
        at = start.index("moves")
        start, moves = start[:at], start[at + 1 :]
    if start[:1] == ["startpos"]:
        board = chess.Board()
    elif start[:1] == ["fen"]:
        board = read_fen(" ".join(start[1:]))
    else:
        raise InvalidInput(f"no position in {' '.join(words)!r}: give startpos or fen FEN")
    for text in moves:
        try:
            move = _move(board, text)
        except ValueError as error:
            raise InvalidInput(f"move {text!r} in {board.fen()!r}: {error}") from error
        if not move:
            raise InvalidInput(f"move {text!r} in {board.fen()!r} is the null move")
        board.push(move)
    return board


def _move(board: chess.Board, text: str) -> chess.Move:
    """A legal move, or the null move. As for Stockfish, capitals are small letters, and the king may take its
    own rook to castle."""
    return board.parse_uci(text.lower())


def parse_option(words: Sequence[str]) -> tuple[str, str]:
    """Name and value of the words after `setoption`. Both may contain spaces.

    >>> parse_option("name Move Overhead value 100".split())
    ('Move Overhead', '100')
    """
    text = " ".join(words).removeprefix("name ")
    name, _, value = text.partition(" value ")
    return name.removesuffix(" value").strip(), value.strip()


OWN = "own"
"""The value of `Temperature` that leaves the temperature to the player's spec."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that have an effect. `temperature` None: as the player's spec says."""

    temperature: float | None = None
    retries: int = 3
    overhead_ms: int = 100

    def set(self, name: str, value: str) -> "Options":
        """The options after `setoption`. Raises `InvalidInput` if there is no such option, or the value is
        wrong. The options stay as they are."""
        match name.lower():
            case "temperature":
                from_spec = value.lower() in (OWN, "", "<empty>")
                return replace(self, temperature=None if from_spec else _number(name, value, 0, 2))
            case "retries":
                return replace(self, retries=int(_number(name, value, 0, 10)))
            case "move overhead":
                return replace(self, overhead_ms=int(_number(name, value, 0, 5000)))
            case "uci_chess960" if value.lower() == "true":
                raise InvalidInput("Chess960 is not supported: no player of Rookery knows its castling")
            case option if option in _ACCEPTED:
                return self
        raise InvalidInput(f"no option {name!r}")


_ACCEPTED = frozenset({"hash", "threads", "syzygypath", "uci_showwdl", "uci_chess960", "ponder"})
"""Set by many GUIs without asking. They have no effect on a player."""

# `UCI_Chess960` and `Ponder` are not declared, so that nobody uses them.
DECLARATIONS = (
    "option name Hash type spin default 16 min 1 max 33554432",
    "option name Threads type spin default 1 min 1 max 1024",
    f"option name Move Overhead type spin default {Options().overhead_ms} min 0 max 5000",
    "option name SyzygyPath type string default <empty>",
    "option name UCI_ShowWDL type check default false",
    f"option name Temperature type string default {OWN}",
    f"option name Retries type spin default {Options().retries} min 0 max 10",
)


def _number(name: str, value: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise InvalidInput(f"{name} {value!r} is not a number from {least:g} to {most:g}")
    return number


class UciSearch:
    """One `go`: its position, what it allows, and the events that end it."""

    def __init__(self, board: chess.Board, go: Go, *, seed: int) -> None:
        self.board, self.go, self.seed = board, go, seed
        moves = set[chess.Move]()
        for text in go.searchmoves:
            with suppress(ValueError):
                moves.add(_move(board, text))
        legal = sorted(board.legal_moves, key=chess.Move.uci)
        # `searchmoves` without a legal move is taken for a mistake, and ignored.
        self.legal = [move for move in legal if move in moves] or legal
        self.started = time.monotonic()
        self.stopped, self.ponder_hit, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.scored = False

    @property
    def waits_for_gui(self) -> bool:
        """Whether only `stop` or `ponderhit` ends it."""
        return self.go.infinite or (self.go.ponder and not self.ponder_hit.is_set())

    async def wait(self, answer: "asyncio.Future[chess.Move | None]", *, overhead_ms: int) -> None:
        """Returns when `answer` is done, the time is up or the search was stopped. While the search is
        infinite or ponders, only `stop` (or `ponderhit`) ends it."""
        stopped = asyncio.ensure_future(self.stopped.wait())
        hit = asyncio.ensure_future(self.ponder_hit.wait())
        try:
            if self.go.ponder:
                await asyncio.wait({stopped, hit}, return_when=asyncio.FIRST_COMPLETED)
            if self.go.infinite:
                await stopped
            budget_s = self.go.budget_s(self.board.turn, overhead_ms=overhead_ms)
            either: set[asyncio.Future[Any]] = {answer, stopped}
            await asyncio.wait(either, timeout=budget_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            hit.cancel()
