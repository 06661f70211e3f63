"""How safe each king is: the pawns before it, pieces around it, the back rank, the endgame."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, of_topic
from commentary.concepts.pawns import beside
from commentary.context import Context, Unknown, Unresolved

concept = of_topic("kings")
_ENDGAME_PIECES = 6
"""Pieces but kings and pawns, with which a king may walk (scalachess, `Divider.scala`: the endgame)."""

CENTRAL = chess.BB_FILE_D | chess.BB_FILE_E
_MIDDLE = chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6


def is_endgame(board: chess.Board) -> bool:
    """Whether so few pieces are left that a king can come out."""
    pieces = (board.knights | board.bishops | board.rooks | board.queens).bit_count()
    return (pieces <= _ENDGAME_PIECES and not board.queens) or pieces <= 2


def king_of(board: chess.Board, side: chess.Color) -> chess.Square:
    """Where a side's king stands."""
    return chess.lsb(board.pieces_mask(chess.KING, side))


def home_rank(side: chess.Color) -> chess.Bitboard:
    """The rank that a side's pieces start from."""
    return chess.BB_RANK_1 if side else chess.BB_RANK_8


def _front(king: chess.Square, side: chess.Color, ranks: int) -> chess.Bitboard:
    """Squares up to `ranks` before the king, on its file and beside it."""
    row = chess.BB_SQUARES[king] | beside(chess.BB_SQUARES[king])
    mask = 0
    for step in range(1, ranks + 1):
        mask |= row << 8 * step if side else row >> 8 * step
    return mask & chess.BB_ALL


def shield(board: chess.Board, side: chess.Color) -> list[chess.Square]:
    """Own pawns one or two ranks before the king, on its file or beside it."""
    mask = _front(king_of(board, side), side, 2) & board.pieces_mask(chess.PAWN, side)
    return sorted(chess.scan_forward(mask), key=chess.square_file)


def middlegame_kings(board: chess.Board) -> Iterator[tuple[chess.Color, chess.Square]]:
    """Both kings, in a middlegame."""
    if not is_endgame(board):
        for side in chess.COLORS:
            yield side, king_of(board, side)


def side_of_king(context: Context, king: chess.Square) -> chess.Color:
    """The side whose king it is."""
    if predicates.name_at(context.board, king) != "king":
        raise Unresolved("a king")
    return context.owner(king)


def _before(king: chess.Square, side: chess.Color, ranks: int) -> set[chess.Square]:
    step = 1 if side == chess.WHITE else -1
    file, rank = chess.square_file(king), chess.square_rank(king)
    reach = [(f, rank + step * n) for f in (file - 1, file, file + 1) for n in range(1, ranks + 1)]
    return {chess.square(f, r) for f, r in reach if 0 <= f <= 7 and 0 <= r <= 7}


def _cover(context: Context, king: chess.Square) -> set[chess.Square]:
    side = side_of_king(context, king)
    near = _before(king, side, 2)
    return {s for s in near if predicates.is_pawn(context.board, s) and context.board.color_at(s) == side}


def _sheltered(board: chess.Board) -> Iterator[Values]:
    for side, king in middlegame_kings(board):
        near = (chess.BB_RANK_1 | chess.BB_RANK_2) if side else (chess.BB_RANK_8 | chess.BB_RANK_7)
        pawns = shield(board, side)
        if chess.BB_SQUARES[king] & near & ~CENTRAL and len(pawns) >= 2:
            yield {"side": side, "king": king, "pawns": pawns}


@concept("king shelter", detect=_sheltered, weight=1.1, favours="side").says(
    "{king} ~(sit|hide||stand|shelter|live|be|be tucked away) (safely )?behind its pawns on {pawns:squares}",
    "{king} ~be (tucked away behind|sheltered by|covered by||well sheltered by|protected by|shielded by) its pawns on {pawns:squares}",
    "{king} ~have its pawns on {pawns:squares} in front of it",
    "||{king} ~(sit|hide|stand|shelter|live|be|be tucked away) (safely |snugly )?behind (its )?{pawns:pieces}",
    "||{king} ~be (well |decently |reasonably )?(sheltered|covered|protected|shielded) by (its )?{pawns:pieces}",
)
def _is_sheltered(context: Context, king: int, pawns: Sequence[int]) -> bool:
    return len(pawns) >= 2 and set(pawns) <= _cover(context, king)


def _bare(board: chess.Board) -> Iterator[Values]:
    for side, king in middlegame_kings(board):
        if not shield(board, side):
            yield {"side": side, "king": king}


def _bare_weight(board: chess.Board, values: Values) -> float:
    if not board.pieces_mask(chess.QUEEN, not values["side"]):
        return 1.0
    return 1.2 if chess.BB_SQUARES[values["king"]] & home_rank(values["side"]) & CENTRAL else 3.4


@concept("king without pawns", detect=_bare, weight=_bare_weight, favours="-side").says(
    "{king} ~have no pawn (cover||shelter|shield)(| at all)( left)?",
    "{king} ~stand without (any )?pawn cover",
    "not a single pawn (covers||shields|shelters) {king}",
    "no pawn (shelters||covers|shields) {king}",
    "there is no pawn in front of {king}",
)
def _is_bare(context: Context, king: int) -> bool:
    return not _cover(context, king)


def _boxed_in(board: chess.Board) -> Iterator[Values]:
    for side, king in middlegame_kings(board):
        pawns = _front(king, side, 1)
        big = board.rooks | board.queens
        full = not pawns & ~board.pieces_mask(chess.PAWN, side) and chess.BB_SQUARES[king] & home_rank(side)
        if full and big & board.occupied_co[not side] and not big & board.occupied_co[side] & home_rank(side):
            yield {"side": side}


@concept("weak back rank", detect=_boxed_in, weight=2.4, favours="-side").says(
    "{side:owner} back rank ~be (weak||a worry|a concern|vulnerable)",
    "the back rank ~be a worry for {side:object}",
)
def _is_weak(context: Context, side: bool) -> bool:
    """The king is shut in by its own pawns on a first rank that no rook or queen guards. Raises `Unknown` if
    one does, but is perhaps not enough."""
    board, home = context.board, 0 if side else 7
    king = predicates.all_of(board, side, "king")[0]
    front = _before(king, side, 1)
    shut_in = chess.square_rank(king) == home and front == _cover(context, king) & front
    guards = predicates.all_of(board, side, "rook", "queen")
    guarded = any(chess.square_rank(square) == home for square in guards)
    if not (shut_in and predicates.count(board, not side, "rook", "queen")):
        return False
    if guarded:
        raise Unknown("guarded often enough, perhaps")
    return True


def _active(board: chess.Board) -> Iterator[Values]:
    if not is_endgame(board):
        return
    for side in chess.COLORS:
        king, enemy_king = king_of(board, side), king_of(board, not side)
        passive = (chess.BB_RANK_7 | chess.BB_RANK_8) if side else (chess.BB_RANK_1 | chess.BB_RANK_2)
        if chess.BB_SQUARES[king] & _MIDDLE and chess.BB_SQUARES[enemy_king] & passive:
            yield {"side": side, "king": king}


@concept("active king", detect=_active, weight=2.0, favours="side").says(
    "{king} ~be (already )?(active||well up the board|in play|in the fight)",
    "{king} ~have already come out( into play)?",
    "||{king} ~have (already )?(walked out|marched|come out) (into play|to the middle|up the board)",
)
def _is_active(context: Context, king: int) -> bool:
    return 2 <= chess.square_rank(king) <= 5
