"""Which pieces are left: the bishops, the kind of ending."""

from collections.abc import Iterator

import chess

from commentary.concept import Values, of_topic, when
from commentary.context import Context, Unknown
from commentary.predicates import all_of, count, is_dark

concept = of_topic("material")


def _both_shades(board: chess.Board, side: chess.Color) -> bool:
    return len({is_dark(square) for square in all_of(board, side, "bishop")}) == 2


def _bishop_pair(board: chess.Board) -> Iterator[Values]:
    halves = (chess.BB_LIGHT_SQUARES, chess.BB_DARK_SQUARES)
    black, white = (
        all(board.pieces_mask(chess.BISHOP, side) & half for half in halves) for side in chess.COLORS[::-1]
    )
    if white != black:
        yield {"side": white}


@concept("bishop pair", detect=_bishop_pair, weight=2.3, favours="side").says(
    "{side} ~(have|own) the (bishop pair|two bishops|pair of bishops)",
    "the (bishop pair||two bishops|pair of bishops) (~belong to||~favour) {side:object}",
)
def _only_both_shades(context: Context, side: bool) -> bool:
    if _both_shades(context.board, not side) and _both_shades(context.board, side):
        raise Unknown("both sides have it")
    return _both_shades(context.board, side)


def _opposite_bishops(board: chess.Board) -> bool:
    white, black = (board.pieces_mask(chess.BISHOP, side) for side in (True, False))
    shades = [bool(bishops & chess.BB_LIGHT_SQUARES) for bishops in (white, black)]
    return white.bit_count() == black.bit_count() == 1 and shades[0] != shades[1]


@concept(
    "opposite bishops",
    detect=when(_opposite_bishops),
    weight=lambda board, values: 1.8 if board.knights | board.rooks | board.queens else 4.0,
).says(
    "there are (bishops of opposite colours|opposite-coloured bishops)( on the board)?",
    "the bishops (are of|run on||travel on) opposite colours",
    "||(bishops of opposite colours|opposite-coloured bishops) ~be on the board",
)
def _opposite(context: Context) -> bool:
    bishops = [all_of(context.board, side, "bishop") for side in chess.COLORS]
    return [len(squares) for squares in bishops] == [1, 1] and is_dark(bishops[0][0]) != is_dark(
        bishops[1][0]
    )


def _ending(board: chess.Board) -> Iterator[Values]:
    masks = {chess.KNIGHT: board.knights, chess.BISHOP: board.bishops}
    masks |= {chess.ROOK: board.rooks, chess.QUEEN: board.queens}
    left = [kind for kind, mask in masks.items() if mask]
    if not left and board.pawns:
        yield {"kind": chess.PAWN, "pure": chess.PAWN}
    elif len(left) == 1 and all(masks[left[0]] & board.occupied_co[side] for side in chess.COLORS):
        yield {"kind": left[0], "others": left[0] if board.pawns else None}


@concept("ending", detect=_ending, weight=4.2).says(
    "(it|this) ~be a {kind} (ending|endgame)( now)?",
    "(it|this) ~be a pure {pure:kind} (ending|endgame)",
    "only {others:kind}s and pawns are left( besides the kings)?",
    "||{side} ~have a (pure )?{kind} (ending|endgame)",
    "||only kings and {pure:kind}s are left",
)
def _is_ending(context: Context, side: bool | None = None, **slots: int) -> bool:
    (kind,) = slots.values()
    board = context.board
    left = {chess.piece_name(piece.piece_type) for piece in board.piece_map().values()} - {"king", "pawn"}
    if kind in (chess.PAWN, chess.KING):
        return not left and any(count(board, side, "pawn") for side in chess.COLORS)
    name = chess.piece_name(kind)
    return left == {name} and all(count(board, side, name) for side in chess.COLORS)


def _queens_off(board: chess.Board) -> bool:
    kinds = sum(bool(mask) for mask in (board.knights, board.bishops, board.rooks))
    return not board.queens and kinds > 1


@concept("queens off", detect=when(_queens_off), weight=1.4).says(
    "(the queens|queens) (are off|are off the board||have come off|have gone)( the board)?",
    "(the )?queens have been (exchanged||traded|swapped)( off)?",
    "there are no queens( left)? on the board",
)
def _no_queens(context: Context) -> bool:
    return not any(all_of(context.board, side, "queen") for side in chess.COLORS)
