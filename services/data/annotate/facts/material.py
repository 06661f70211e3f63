"""Who has which pieces: the balance, the bishops, the kind of ending."""

from collections.abc import Iterator
from dataclasses import dataclass

import chess

from services.data.annotate.exchange import VALUES
from services.data.annotate.facts.fact import Fact

KINDS = (chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN)
_LIGHT_AND_DARK = (chess.BB_LIGHT_SQUARES, chess.BB_DARK_SQUARES)


@dataclass(frozen=True, slots=True)
class Balance(Fact):
    """What each side has that the other has not, pieces of a kind cancelled one against one.

    Both tuples count pawns, knights, bishops, rooks, queens; `points` is White's total minus Black's.
    """

    white: tuple[int, ...]
    black: tuple[int, ...]
    points: int

    @property
    def favours(self) -> chess.Color | None:
        return None if self.points == 0 else self.points > 0

    def surplus(self, side: chess.Color) -> tuple[int, ...]:
        """What `side` has more of."""
        return self.white if side else self.black


@dataclass(frozen=True, slots=True)
class BishopPair(Fact):
    """`side` has a bishop on squares of each colour, the other side has not."""

    side: chess.Color

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class OppositeBishops(Fact):
    """Each side has one bishop, on different colours; `pure` when there is nothing else but pawns."""

    white: chess.Square
    black: chess.Square
    pure: bool

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.white, self.black


@dataclass(frozen=True, slots=True)
class Ending(Fact):
    """Besides kings and pawns only pieces of one kind are left, at least one a side; or none at all.

    `kind` is that piece, PAWN when there are only kings and pawns.
    """

    kind: chess.PieceType


@dataclass(frozen=True, slots=True)
class QueensOff(Fact):
    """No queen is left, but more than one kind of piece."""


def counts(board: chess.Board, side: chess.Color) -> tuple[int, ...]:
    """Pawns, knights, bishops, rooks and queens of a side."""
    return tuple(board.pieces_mask(kind, side).bit_count() for kind in KINDS)


def balance(board: chess.Board) -> Balance:
    """The balance of a board.

    >>> balance(chess.Board("4k3/pp6/8/8/8/8/P7/4K2R w - - 0 1"))
    Balance(white=(0, 0, 0, 1, 0), black=(1, 0, 0, 0, 0), points=4)
    """
    white, black = counts(board, chess.WHITE), counts(board, chess.BLACK)
    difference = [w - b for w, b in zip(white, black, strict=True)]
    return Balance(
        white=tuple(max(0, d) for d in difference),
        black=tuple(max(0, -d) for d in difference),
        points=sum(d * VALUES[kind] for d, kind in zip(difference, KINDS, strict=True)),
    )


def material(board: chess.Board) -> Iterator[Fact]:
    """Every fact about who has which pieces."""
    yield balance(board)
    pair = [
        all(board.pieces_mask(chess.BISHOP, side) & half for half in _LIGHT_AND_DARK)
        for side in (chess.BLACK, chess.WHITE)
    ]
    if pair[0] != pair[1]:
        yield BishopPair(side=pair[1])
    yield from _opposite_bishops(board)
    yield from _ending(board)


def _opposite_bishops(board: chess.Board) -> Iterator[Fact]:
    white, black = (board.pieces_mask(chess.BISHOP, side) for side in (chess.WHITE, chess.BLACK))
    if white.bit_count() != 1 or black.bit_count() != 1:
        return
    if bool(white & chess.BB_LIGHT_SQUARES) == bool(black & chess.BB_LIGHT_SQUARES):
        return
    pure = not board.knights | board.rooks | board.queens
    yield OppositeBishops(chess.lsb(white), chess.lsb(black), pure)


def _ending(board: chess.Board) -> Iterator[Fact]:
    pieces = {
        chess.KNIGHT: board.knights,
        chess.BISHOP: board.bishops,
        chess.ROOK: board.rooks,
        chess.QUEEN: board.queens,
    }
    left = [kind for kind, mask in pieces.items() if mask]
    if not left and board.pawns:
        yield Ending(chess.PAWN)
    elif len(left) == 1 and all(pieces[left[0]] & board.occupied_co[side] for side in (0, 1)):
        yield Ending(left[0])
    elif left and not board.queens:
        yield QueensOff()
