"""Open and half-open files, who stands on them, and rooks on the seventh rank."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import chess

from services.data.annotate.facts.fact import Fact


@dataclass(frozen=True, slots=True)
class OpenFile(Fact):
    """No pawn on the file. `white` and `black` are the rooks and queens that stand on it."""

    file: int
    white: tuple[chess.Square, ...]
    black: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.white + self.black

    @property
    def favours(self) -> chess.Color | None:
        return None if bool(self.white) == bool(self.black) else bool(self.white)


@dataclass(frozen=True, slots=True)
class HalfOpen(Fact):
    """`side` has no pawn on the file and the other side has: `target` is the foremost of those.

    `heavy` are the rooks and queens of `side` on the file.
    """

    side: chess.Color
    file: int
    target: chess.Square
    heavy: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.target, *self.heavy)

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Seventh(Fact):
    """A rook on its seventh rank, with enemy pawns there or the enemy king on rank seven or eight."""

    rook: chess.Square
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.rook,)

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Doubled(Fact):
    """Two rooks, or rook and queen, of a side on one file with nothing between them and no own pawn on it."""

    side: chess.Color
    file: int
    pieces: tuple[chess.Square, chess.Square]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pieces

    @property
    def favours(self) -> chess.Color | None:
        return self.side


def files(board: chess.Board) -> Iterator[Fact]:
    """Every fact about files and the pieces that live on them."""
    for file, mask in enumerate(chess.BB_FILES):
        pawns = {side: board.pieces_mask(chess.PAWN, side) & mask for side in (chess.WHITE, chess.BLACK)}
        heavy = {side: _heavy(board, side, mask) for side in (chess.WHITE, chess.BLACK)}
        if not board.pawns & mask:
            yield OpenFile(file, heavy[chess.WHITE], heavy[chess.BLACK])
        for side in (chess.WHITE, chess.BLACK):
            if not pawns[side] and pawns[not side]:
                yield HalfOpen(side, file, _foremost(pawns[not side], not side), heavy[side])
            if not pawns[side]:
                yield from _doubled(board, side, file, heavy[side])
    for side in (chess.WHITE, chess.BLACK):
        yield from _seventh(board, side)


def _heavy(board: chess.Board, side: chess.Color, mask: chess.Bitboard) -> tuple[chess.Square, ...]:
    return tuple(chess.scan_forward((board.rooks | board.queens) & board.occupied_co[side] & mask))


def _foremost(pawns: chess.Bitboard, side: chess.Color) -> chess.Square:
    return chess.msb(pawns) if side else chess.lsb(pawns)


def _doubled(
    board: chess.Board, side: chess.Color, file: int, heavy: tuple[chess.Square, ...]
) -> Iterator[Fact]:
    for lower, upper in pairwise(heavy):
        between = chess.between(lower, upper) & board.occupied
        if not between and board.rooks & (chess.BB_SQUARES[lower] | chess.BB_SQUARES[upper]):
            yield Doubled(side, file, (lower, upper))


def _seventh(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    seventh, eighth = (chess.BB_RANK_7, chess.BB_RANK_8) if side else (chess.BB_RANK_2, chess.BB_RANK_1)
    prey = board.occupied_co[not side] & (board.pawns & seventh | board.kings & (seventh | eighth))
    if prey:
        for square in chess.scan_forward(board.pieces_mask(chess.ROOK, side) & seventh):
            yield Seventh(square, side)
