"""How well the pieces stand: outposts, pieces still at home, bishops behind their own pawns, no moves."""

from collections.abc import Iterator
from dataclasses import dataclass

import chess

from services.data.annotate.facts.fact import Fact
from services.data.annotate.facts.pawns import ahead

_HOME = {
    chess.WHITE: {chess.KNIGHT: (chess.B1, chess.G1), chess.BISHOP: (chess.C1, chess.F1)},
    chess.BLACK: {chess.KNIGHT: (chess.B8, chess.G8), chess.BISHOP: (chess.C8, chess.F8)},
}
_OUTPOST_RANKS = {
    chess.WHITE: chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6,
    chess.BLACK: chess.BB_RANK_5 | chess.BB_RANK_4 | chess.BB_RANK_3,
}
_BAD_SHARE = 0.7
"""Of its side's pawns on the bishop's colour, from which on it is called bad here."""

_HEMMED_SQUARES = 3

_EARLY_PLIES = 40
"""Half-moves after which an undeveloped piece is no longer a matter of development."""


@dataclass(frozen=True, slots=True)
class Outpost(Fact):
    """A knight or bishop on ranks four to six, defended by an own pawn, that no enemy pawn can ever attack.

    No enemy pawn stands on a neighbouring file before it.
    """

    square: chess.Square
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.square,)

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class AtHome(Fact):
    """Knights and bishops of a side on the squares they start from, the other side's beside them."""

    side: chess.Color
    pieces: tuple[chess.Square, ...]
    others: int

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pieces

    @property
    def favours(self) -> chess.Color | None:
        return not self.side if len(self.pieces) > self.others else None


@dataclass(frozen=True, slots=True)
class BadBishop(Fact):
    """At least four own pawns, and seven tenths of them, stand on squares of the bishop's colour.

    It is `hemmed` in when it can go to three squares or fewer.
    """

    square: chess.Square
    side: chess.Color
    same: int
    total: int
    hemmed: bool

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.square,)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Immobile(Fact):
    """A piece off its first rank that attacks no square but those of its own pieces."""

    square: chess.Square
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.square,)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


def pieces(board: chess.Board) -> Iterator[Fact]:
    """Every fact about where the pieces stand."""
    for side in (chess.WHITE, chess.BLACK):
        yield from _outposts(board, side)
        yield from _bishops(board, side)
        yield from _immobile(board, side)
    if board.ply() <= _EARLY_PLIES:
        home = {side: at_home(board, side) for side in (chess.WHITE, chess.BLACK)}
        for side in (chess.WHITE, chess.BLACK):
            if home[side]:
                yield AtHome(side, home[side], len(home[not side]))


def at_home(board: chess.Board, side: chess.Color) -> tuple[chess.Square, ...]:
    """Knights and bishops on the squares they start from."""
    return tuple(
        square
        for kind, squares in _HOME[side].items()
        for square in squares
        if board.pieces_mask(kind, side) & chess.BB_SQUARES[square]
    )


def _outposts(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    minors = (board.knights | board.bishops) & board.occupied_co[side] & _OUTPOST_RANKS[side]
    for square in chess.scan_forward(minors):
        if board.attackers_mask(side, square) & board.pawns and not pawns_can_attack(board, square, not side):
            yield Outpost(square, side)


def pawns_can_attack(board: chess.Board, square: chess.Square, side: chess.Color) -> bool:
    """Whether a pawn of `side` attacks the square or might by advancing on its file."""
    front = ahead(square, not side)
    lanes = ((front << 1) & ~chess.BB_FILE_A) | ((front >> 1) & ~chess.BB_FILE_H)
    return bool(board.pieces_mask(chess.PAWN, side) & lanes)


def _bishops(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    pawns = board.pieces_mask(chess.PAWN, side)
    total = pawns.bit_count()
    for square in board.pieces(chess.BISHOP, side):
        light = chess.BB_LIGHT_SQUARES & chess.BB_SQUARES[square]
        same = (pawns & (chess.BB_LIGHT_SQUARES if light else chess.BB_DARK_SQUARES)).bit_count()
        if same >= 4 and same >= _BAD_SHARE * total:
            free = board.attacks_mask(square) & ~board.occupied_co[side]
            yield BadBishop(square, side, same, total, hemmed=free.bit_count() <= _HEMMED_SQUARES)


def _immobile(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    own = board.occupied_co[side]
    home = chess.BB_RANK_1 if side else chess.BB_RANK_8
    for square in chess.scan_forward(own & ~board.pawns & ~board.kings & ~home):
        if not board.attacks_mask(square) & ~own:
            yield Immobile(square, side)
