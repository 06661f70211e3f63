"""Parses what a GUI sends: `position`, `go` and `setoption`."""

from collections.abc import Sequence
from dataclasses import dataclass

import chess

from rookery.errors import InvalidInput

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
    """The board that the words after `position` describe, with the moves on its stack.

    Raises:
        InvalidInput: the FEN cannot be read, the position is impossible, or a move is illegal.
    """
    start, moves = list(words), list[str]()
    if "moves" in start:
        at = start.index("moves")
        start, moves = start[:at], start[at + 1 :]
    if start[:1] == ["startpos"]:
        board = chess.Board()
    elif start[:1] == ["fen"]:
        board = _board(" ".join(start[1:]))
    else:
        raise InvalidInput(f"no position in {' '.join(words)!r}: give startpos or fen FEN")
    for text in moves:
        try:
            move = board.parse_uci(text)
        except ValueError as error:
            raise InvalidInput(f"move {text!r} in {board.fen()!r}: {error}") from error
        if not move:
            raise InvalidInput(f"move {text!r} in {board.fen()!r} is the null move")
        board.push(move)
    return board


def _board(fen: str) -> chess.Board:
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise InvalidInput(f"FEN {fen!r}: {error}") from error
    if status := board.status():
        faults = ", ".join(flag.name.lower() for flag in chess.Status if flag & status and flag.name)
        raise InvalidInput(f"impossible position {fen!r}: {faults}")
    return board


def parse_option(words: Sequence[str]) -> tuple[str, str]:
    """Name and value of the words after `setoption`. Both may contain spaces.

    >>> parse_option("name Move Overhead value 100".split())
    ('Move Overhead', '100')
    """
    text = " ".join(words).removeprefix("name ")
    name, _, value = text.partition(" value ")
    return name.removesuffix(" value").strip(), value.strip()
