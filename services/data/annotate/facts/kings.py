"""How safe each king is: checks, castling rights, the pawns before it, open lines, the back rank."""

from collections.abc import Iterator
from dataclasses import dataclass

import chess

from services.data.annotate.facts.fact import Fact

_ENDGAME_PIECES = 6
"""Pieces but kings and pawns, with which a king may walk (scalachess, `Divider.scala`: the endgame)."""

_CENTRAL_FILES = chess.BB_FILE_D | chess.BB_FILE_E
_MIDDLE = chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6


@dataclass(frozen=True, slots=True)
class Checked(Fact):
    """The side to move is in check by `checkers`; `replies` counts its legal moves."""

    side: chess.Color
    king: chess.Square
    checkers: tuple[chess.Square, ...]
    replies: int

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.king, *self.checkers)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Sheltered(Fact):
    """The king stands on the first two ranks off the d- and e-files behind `pawns`, two or more of its own.

    They stand one or two ranks before it, on its file or beside it.
    """

    side: chess.Color
    king: chess.Square
    pawns: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.king, *self.pawns)

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Bare(Fact):
    """No own pawn one or two ranks before the king, on its file or beside it; no endgame yet."""

    side: chess.Color
    king: chess.Square

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.king,)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Central(Fact):
    """The king stands on the d- or e-file of its first rank. The flags are its rights to castle."""

    side: chess.Color
    king: chess.Square
    kingside: bool
    queenside: bool

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.king,)

    @property
    def favours(self) -> chess.Color | None:
        return None if self.kingside or self.queenside else not self.side


@dataclass(frozen=True, slots=True)
class Line(Fact):
    """The enemy has a rook or queen, and no pawn on a file of the king or next to it.

    `open` when the king's side has none either; `heavy` are the enemy rooks and queens on it.
    """

    side: chess.Color
    king: chess.Square
    file: int
    open: bool
    heavy: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.king, *self.heavy)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Besieged(Fact):
    """`attackers`, pieces but not pawns nor the king, each attack a square next to the king."""

    side: chess.Color
    king: chess.Square
    attackers: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.king, *self.attackers)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class BackRank(Fact):
    """The king is on its first rank, its own pawns fill every square before it, an enemy rook or queen lives.

    And no own rook or queen stands on that rank.
    """

    side: chess.Color
    king: chess.Square
    pawns: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.king, *self.pawns)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Active(Fact):
    """In the endgame: the king stands on ranks three to six, the enemy's on its own first two ranks."""

    side: chess.Color
    king: chess.Square
    other: chess.Square

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.king, self.other

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Opposition(Fact):
    """Only kings and pawns; the kings face each other, one square between; `mover` must give way."""

    mover: chess.Color
    kings: tuple[chess.Square, chess.Square]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.kings

    @property
    def favours(self) -> chess.Color | None:
        return not self.mover


def kings(board: chess.Board) -> Iterator[Fact]:
    """Every fact about the kings."""
    if board.is_check():
        checkers = tuple(chess.scan_forward(board.checkers_mask()))
        yield Checked(board.turn, _king(board, board.turn), checkers, board.legal_moves.count())
    if _is_endgame(board):
        yield from _endgame(board)
        return
    for side in (chess.WHITE, chess.BLACK):
        yield from _cover(board, side)
        yield from _lines(board, side)
        yield from _besieged(board, side)
        yield from _back_rank(board, side)


def shield(board: chess.Board, side: chess.Color) -> tuple[chess.Square, ...]:
    """Own pawns one or two ranks before the king, on its file or beside it."""
    mask = _before(_king(board, side), side, 2) & board.pieces_mask(chess.PAWN, side)
    return tuple(sorted(chess.scan_forward(mask), key=chess.square_file))


def _is_endgame(board: chess.Board) -> bool:
    pieces = board.knights | board.bishops | board.rooks | board.queens
    return (pieces.bit_count() <= _ENDGAME_PIECES and not board.queens) or pieces.bit_count() <= 2


def _king(board: chess.Board, side: chess.Color) -> chess.Square:
    return chess.lsb(board.pieces_mask(chess.KING, side))


def _before(king: chess.Square, side: chess.Color, ranks: int) -> chess.Bitboard:
    """Squares up to `ranks` before the king, on its file and beside it."""
    square = chess.BB_SQUARES[king]
    row = square | (square << 1) & ~chess.BB_FILE_A & chess.BB_ALL | (square >> 1) & ~chess.BB_FILE_H
    mask = 0
    for step in range(1, ranks + 1):
        mask |= row << 8 * step if side else row >> 8 * step
    return mask & chess.BB_ALL


def _cover(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    king = _king(board, side)
    home = chess.BB_RANK_1 if side else chess.BB_RANK_8
    near = home | (chess.BB_RANK_2 if side else chess.BB_RANK_7)
    pawns = shield(board, side)
    place = chess.BB_SQUARES[king]
    if place & home & _CENTRAL_FILES:
        yield Central(
            side, king, board.has_kingside_castling_rights(side), board.has_queenside_castling_rights(side)
        )
    elif place & near & ~_CENTRAL_FILES and len(pawns) >= 2:
        yield Sheltered(side, king, pawns)
    if not pawns:
        yield Bare(side, king)


def _lines(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    king = _king(board, side)
    enemy = board.pieces_mask(chess.PAWN, not side)
    heavy = (board.rooks | board.queens) & board.occupied_co[not side]
    for file in range(max(0, chess.square_file(king) - 1), min(7, chess.square_file(king) + 1) + 1):
        mask = chess.BB_FILES[file]
        if heavy and not enemy & mask:
            yield Line(side, king, file, not board.pawns & mask, tuple(chess.scan_forward(heavy & mask)))


def _besieged(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    king = _king(board, side)
    zone = chess.BB_KING_ATTACKS[king]
    pieces = board.occupied_co[not side] & ~board.pawns & ~board.kings
    attackers = tuple(square for square in chess.scan_forward(pieces) if board.attacks_mask(square) & zone)
    if len(attackers) >= 2:
        yield Besieged(side, king, attackers)


def _back_rank(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    king = _king(board, side)
    home = chess.BB_RANK_1 if side else chess.BB_RANK_8
    heavy = board.rooks | board.queens
    front = _before(king, side, 1)
    if (
        chess.BB_SQUARES[king] & home
        and not front & ~board.pieces_mask(chess.PAWN, side)
        and heavy & board.occupied_co[not side]
        and not heavy & board.occupied_co[side] & home
    ):
        yield BackRank(side, king, tuple(chess.scan_forward(front)))


def _endgame(board: chess.Board) -> Iterator[Fact]:
    for side in (chess.WHITE, chess.BLACK):
        king, other = _king(board, side), _king(board, not side)
        passive = (chess.BB_RANK_7 | chess.BB_RANK_8) if side else (chess.BB_RANK_1 | chess.BB_RANK_2)
        if chess.BB_SQUARES[king] & _MIDDLE and chess.BB_SQUARES[other] & passive:
            yield Active(side, king, other)
    only_pawns = not board.occupied & ~board.pawns & ~board.kings
    pair = _king(board, chess.WHITE), _king(board, chess.BLACK)
    if only_pawns and board.pawns and _facing(*pair):
        yield Opposition(board.turn, pair)


def _facing(one: chess.Square, other: chess.Square) -> bool:
    files = abs(chess.square_file(one) - chess.square_file(other))
    ranks = abs(chess.square_rank(one) - chess.square_rank(other))
    return (files, ranks) in ((0, 2), (2, 0))
