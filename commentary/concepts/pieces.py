"""How the pieces stand: outposts, development, bishops behind their own pawns, pieces without moves."""

from collections.abc import Iterator
from typing import Any

import chess

from commentary import predicates
from commentary.concept import Values, every, of_topic
from commentary.concepts.pawns import ahead, beside
from commentary.context import Context, Unknown

concept = of_topic("pieces")
_HOME = {
    chess.WHITE: {chess.B1: "knight", chess.G1: "knight", chess.C1: "bishop", chess.F1: "bishop"},
    chess.BLACK: {chess.B8: "knight", chess.G8: "knight", chess.C8: "bishop", chess.F8: "bishop"},
}
_OUTPOST_RANKS = {
    chess.WHITE: chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6,
    chess.BLACK: chess.BB_RANK_5 | chess.BB_RANK_4 | chess.BB_RANK_3,
}
EARLY_PLIES = 40
"""Half-moves after which an undeveloped piece is no longer a matter of development."""

_HEMMED_SQUARES = 3
_SEVERAL = 2


def at_home(board: chess.Board, side: chess.Color) -> tuple[chess.Square, ...]:
    """Knights and bishops on the squares they start from."""
    minors = {"knight": board.knights, "bishop": board.bishops}
    pieces = board.occupied_co[side]
    return tuple(s for s, name in _HOME[side].items() if minors[name] & pieces & chess.BB_SQUARES[s])


def home_count(board: chess.Board, side: chess.Color) -> int:
    """How many knights and bishops are where they start from, counted square by square."""
    return sum(
        predicates.name_at(board, square) == name and board.color_at(square) == side
        for square, name in _HOME[side].items()
    )


def is_out_of_reach(board: chess.Board, square: chess.Square) -> bool:
    """Whether no enemy pawn can ever come to attack what stands there."""
    side = bool(board.color_at(square))
    near = [predicates.pawns_on(board, file, not side) for file in predicates.files_beside(square)]
    rest = predicates.steps_to_go(square, side)
    return all(predicates.steps_to_go(pawn, side) >= rest for pawns in near for pawn in pawns)


def is_outpost(board: chess.Board, square: chess.Square) -> bool:
    """A minor piece that a pawn defends and that no enemy pawn can ever chase away."""
    side = board.color_at(square)
    if side is None or predicates.name_at(board, square) not in ("knight", "bishop"):
        return False
    guarded = any(predicates.is_pawn(board, defender) for defender in predicates.defenders(board, square))
    return 2 <= predicates.steps_to_go(square, side) <= 4 and guarded and is_out_of_reach(board, square)


def outposts(board: chess.Board) -> Iterator[Values]:
    """Minor pieces that a pawn defends and that no enemy pawn can come to attack."""
    for side in chess.COLORS:
        minors = (board.knights | board.bishops) & board.occupied_co[side] & _OUTPOST_RANKS[side]
        for square in chess.scan_forward(minors):
            guarded = board.attackers_mask(side, square) & board.pawns
            if guarded and not board.pieces_mask(chess.PAWN, not side) & beside(ahead(square, side)):
                yield {"piece": square, "side": side}


concept("outpost", detect=outposts, holds=every(is_outpost), weight=2.7, favours="side").says(
    "{piece} ~(sit||stand|be|settle) on an outpost( there)?",
    "{piece} ~have (settled on an outpost|an outpost there||an outpost)",
    "{piece} ~be (firmly planted||securely planted|anchored|established) on an outpost",
    ">no pawn can (ever |)chase {piece} away",
    ">{piece} ~be out of reach of (|the |any )pawns",
    ">{piece} cannot be driven away by pawns",
)
concept("out of reach of pawns", holds=every(is_out_of_reach), weight=0.2).says(
    "||no (enemy |black |white )?pawn can (ever )?chase {piece} away",
    "||{piece} ~be out of reach of (the |any )?(enemy )?pawns",
    "||{piece} (cannot|can never) be (driven away|chased away|kicked away|attacked) by (a pawn|pawns|enemy pawns|an enemy pawn)",
)


def _undeveloped(board: chess.Board) -> Iterator[Values]:
    if board.ply() > EARLY_PLIES:
        return
    home = {side: at_home(board, side) for side in chess.COLORS}
    for side in chess.COLORS:
        count, enemy_count = len(home[side]), len(home[not side])
        if count:
            comparison = {"late": side, "other": not side} if count > enemy_count else {}
            amount = {"number": count} if count > 1 else {"single": home[side][0]}
            listing = {"pieces": list(home[side])} if count <= _SEVERAL else {}
            yield {"side": side, **comparison, **amount, **listing}


def _undeveloped_weight(board: chess.Board, values: Values) -> float:
    return 0.8 + 0.25 * len(at_home(board, values["side"])) + (1.2 if "late" in values else 0.0)


@concept("undeveloped pieces", detect=_undeveloped, weight=_undeveloped_weight, favours="-late").says(
    "{side} ~have {number:count} minor pieces (still at home|undeveloped||at home)",
    "{side} ~have (yet to develop|still to bring out||still to develop|yet to bring out) {pieces}",
    "{single:piece} ~be still on its (original||starting) square",
    "{pieces} ~(be|be||stand|sit) (still||both still|still both|all still) (at home||undeveloped|on their original squares)",
    "{late:side} ~be (behind in development|slightly behind in development||clearly behind in development)",
    "{other:side} ~be (ahead in development|better developed)",
    "||{side} ~have {number:count} minor piece (still at home|undeveloped)",
    "||{pieces} ~(be|stand|sit) (at home|undeveloped|on its (original|starting) square)",
)
def _are_at_home(context: Context, number: int | None = None, late: Any = None, **slots: Any) -> bool:
    board, side = context.board, slots.get("side", late)
    if number is not None:
        return home_count(board, side) == number
    if not {"pieces", "single"} & set(slots):
        behind = home_count(board, side) - home_count(board, not side)
        if behind == 0:
            raise Unknown("castling and rooks may decide it")
        return behind > 0
    pieces = [*slots.get("pieces", ()), *([slots["single"]] if "single" in slots else [])]
    if not {predicates.name_at(board, square) for square in pieces} <= {"knight", "bishop"}:
        raise Unknown("when a queen, a rook or a king is developed")
    names = [_HOME[bool(board.color_at(square))].get(square) for square in pieces]
    right = side is None or context.owner(*pieces) == side
    return right and [predicates.name_at(board, square) for square in pieces] == names


def _bad_bishops(board: chess.Board) -> Iterator[Values]:
    """Bishops with few squares behind own pawns of their colour that cannot move."""
    for side in chess.COLORS:
        pawns = board.pieces_mask(chess.PAWN, side)
        blocked = pawns & (board.occupied >> 8 if side else board.occupied << 8) & chess.BB_ALL
        for square in board.pieces(chess.BISHOP, side):
            light = chess.BB_LIGHT_SQUARES & chess.BB_SQUARES[square]
            colour = chess.BB_LIGHT_SQUARES if light else chess.BB_DARK_SQUARES
            diagonals = chess.BB_DIAG_MASKS[square] & board.pawns
            free = chess.BB_DIAG_ATTACKS[square][diagonals] & ~pawns
            if (blocked & colour).bit_count() >= 3 and free.bit_count() <= _HEMMED_SQUARES:
                yield {"bishop": square, "side": side}


@concept("bad bishop", detect=_bad_bishops, weight=1.8, favours="-side").says(
    "{bishop} ~be (hemmed in||restricted|hampered) by its own pawns",
    "{bishop} ~(bite||bites) on its own pawns",
    "{bishop} ~be a bad bishop, (hemmed in by|stuck behind) its own pawns",
    "||{bishop} ~be (bad|a bad bishop|a bad piece|the bad bishop)",
)
def _is_hemmed_in(context: Context, bishop: int) -> bool:
    """At most three squares to go to, and three own pawns of its colour that cannot step forward. Raises
    `Unknown` if one is, and it depends on how much that is."""
    board, side = context.board, context.owner(bishop)
    if predicates.name_at(board, bishop) != "bishop":
        raise Unknown("what is bad about another piece")
    free = [target for target in board.attacks(bishop) if board.color_at(target) != side]
    shade = [
        p
        for p in predicates.all_of(board, side, "pawn")
        if predicates.is_dark(p) == predicates.is_dark(bishop)
    ]
    fixed = [pawn for pawn in shade if board.piece_at(predicates.ahead_of(pawn, side)[0])]
    hemmed = len(free) <= _HEMMED_SQUARES and len(fixed) >= 3
    if fixed and not hemmed:
        raise Unknown("a bishop with some pawns in its way")
    return hemmed


def _immobile(board: chess.Board) -> Iterator[Values]:
    for side in chess.COLORS:
        pieces = board.occupied_co[side]
        home = chess.BB_RANK_1 if side else chess.BB_RANK_8
        for square in chess.scan_forward(pieces & ~board.pawns & ~board.kings & ~home):
            if not board.attacks_mask(square) & ~pieces:
                yield {"piece": square, "side": side}


@concept("piece without moves", detect=_immobile, weight=2.2, favours="-side").says(
    "{piece} ~have (no squares to go to|no moves|nowhere to go||no squares)( at all)?",
    "{piece} ~be shut in( completely)?",
    "{piece} cannot move( at all)?",
)
def _has_no_moves(context: Context, piece: int) -> bool:
    """Whether it has no legal move at the turn of its side: a pawn may be blocked, a piece pinned."""
    view = context.board.copy(stack=False)
    view.turn = context.owner(piece)
    return all(move.from_square != piece for move in view.legal_moves)


concept("own piece", holds=every(lambda board, piece: board.piece_at(piece)), weight=0.3).says(
    "||{us:speaker} ~have {pieces:owned}( there)?",
    "||{side} ~(have|own|get|hold) {piece:held}( there)?",
    "||{side} ~have {pieces}",
)
