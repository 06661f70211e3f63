"""What a quiet move is good for: squares and outposts, more active pieces, kings that approach, plans."""

from collections.abc import Iterator

import chess

from commentary import predicates
from commentary.concept import Values, move_concept, when
from commentary.concepts.kings import is_endgame
from commentary.concepts.mates import Foe
from commentary.concepts.pieces import is_outpost, outposts
from commentary.context import Context, Unknown
from commentary.step import Step
from commentary.wording import HOW, SOME

_BIG_CENTRE = (chess.BB_FILE_C | chess.BB_FILE_D | chess.BB_FILE_E | chess.BB_FILE_F) & (
    chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6
)
_MIDDLE = chess.BB_D4 | chess.BB_E4 | chess.BB_D5 | chess.BB_E5
_MORE_SQUARES = 3
"""Squares that a piece must gain to stand more actively, or to be called freed."""


def _activates(step: Step) -> bool:
    if step.kind in (chess.PAWN, chess.KING):
        return False
    before, after = step.before.attacks_mask(step.origin), step.after.attacks_mask(step.target)
    return after.bit_count() >= before.bit_count() + _MORE_SQUARES


@move_concept("activates the moved piece", detect=when(_activates), weight=1.7).says(
    "~put {moved} on a (more active|better||more useful) square",
    "~bring {moved} to a (more active|better) square",
    "~improve (the position of |){moved}",
    "~make {moved} more active",
)
def _is_more_active(context: Context) -> bool:
    now, then = len(context.board.attacks(context.to)), len(context.before.attacks(context.origin))
    return now >= then + _MORE_SQUARES


def _connected(board: chess.Board, side: chess.Color) -> bool:
    rooks = board.pieces_mask(chess.ROOK, side) & (chess.BB_RANK_1 if side else chess.BB_RANK_8)
    if rooks.bit_count() != 2:
        return False
    return not chess.between(chess.lsb(rooks), chess.msb(rooks)) & board.occupied


def _connects(step: Step) -> bool:
    return _connected(step.after, step.mover) and not _connected(step.before, step.mover)


def _rooks_see_each_other(board: chess.Board, side: chess.Color) -> bool:
    home = 0 if side else 7
    rooks = [s for s in predicates.all_of(board, side, "rook") if chess.square_rank(s) == home]
    return len(rooks) == 2 and predicates.defends(board, *rooks)


@move_concept("connects the rooks", detect=when(_connects), weight=2.0).says("~connect the rooks")
def _connects_now(context: Context) -> bool:
    was, now = (
        _rooks_see_each_other(board, context.before.turn) for board in (context.before, context.board)
    )
    return now and not was


def _approaches(step: Step) -> Iterator[Values]:
    """In an endgame, a king's step towards the nearest pawn that needs or fears it."""
    if step.kind != chess.KING or step.castles or not is_endgame(step.after):
        return
    distances = [
        (chess.square_distance(step.target, pawn), pawn, chess.square_distance(step.origin, pawn))
        for pawn in chess.scan_forward(step.after.pawns)
    ]
    near = [(now, pawn) for now, pawn, then in distances if 1 < now < then]
    if near:
        yield {"pawn": min(near)[1]}


@move_concept("brings the king nearer", detect=_approaches, weight=1.6).says(
    "~(approach|step towards|head for||walk towards) {pawn}",
    "~bring {moved} (nearer|closer) to {pawn}",
)
def _is_nearer(context: Context, pawn: int) -> bool:
    """Whether the king has come nearer to a pawn. Raises `Unknown` of other pieces, which have other ways."""
    if predicates.name_at(context.board, context.to) != "king" or not predicates.is_pawn(context.board, pawn):
        raise Unknown("nearer for another piece, or to another")
    now, then = (chess.square_distance(square, pawn) for square in (context.to, context.origin))
    return now < then


@move_concept("prepares", weight=1.0).says("~(prepare|make ready for|get ready for|set up||plan) {foe}")
def _follows(context: Context, foe: Foe) -> bool:
    """The engine's line goes on with that move once the other side has replied."""
    line, played = context.evidence(), len(context.moves)
    if len(line.moves) < played + 2:
        return False
    board = context.board.copy(stack=False)
    board.push_uci(line.moves[played])
    return foe(board).uci() == line.moves[played + 1]


move_concept(
    "takes an outpost",
    detect=when(lambda step: any(values["piece"] == step.target for values in outposts(step.after))),
    holds=lambda context: is_outpost(context.board, context.to),
    weight=3.2,
).says(
    "~(settle on|occupy||land on|claim|take) an outpost",
    "~take an outpost on {here:square}",
    "~(plant|put||post|install) {moved} on an outpost",
)


def _centralises(step: Step) -> Iterator[Values]:
    enters = _BIG_CENTRE & chess.BB_SQUARES[step.target] and not _BIG_CENTRE & chess.BB_SQUARES[step.origin]
    pieces = step.after.occupied & ~step.after.pawns & ~step.after.kings
    late = pieces.bit_count() <= 4 and not step.after.queens
    if enters and (step.kind == chess.KNIGHT or (step.kind == chess.KING and late)):
        knight = step.kind == chess.KNIGHT
        yield {"kind": step.kind if knight else None}


@move_concept("centralises", detect=_centralises, weight=1.8).says(
    "~centralise (a {kind}|{moved})",
    "~bring (a {kind}|{moved}) (towards||into|to) the centre",
)
def _is_central_now(context: Context, kind: int | None = None) -> bool:
    """Whether it has come to the sixteen squares in the middle, or to the four, from outside them."""
    inner = context.to in predicates.CENTRE and context.origin not in predicates.CENTRE
    outer = predicates.is_central(context.to) and not predicates.is_central(context.origin)
    return (inner or outer) and kind in (None, context.board.piece_type_at(context.to))


def _covers(step: Step) -> Iterator[Values]:
    fresh = step.after.attacks_mask(step.target) & ~step.before.attacks_mask(step.origin)
    theirs = chess.BB_RANK_5 | chess.BB_RANK_6 if step.mover else chess.BB_RANK_4 | chess.BB_RANK_3
    squares = fresh & (theirs & _BIG_CENTRE | _MIDDLE) & ~step.after.occupied
    if squares and step.kind != chess.KING and not step.castles:
        ranked = sorted(chess.scan_forward(squares), key=lambda s: not _MIDDLE & chess.BB_SQUARES[s])
        yield {"fields": sorted(ranked[:2])}


move_concept(
    "covers squares",
    detect=_covers,
    holds=lambda context, fields: set(fields) <= set(context.board.attacks(context.to)),
    weight=0.8,
).says(
    "~(control|cover|watch|eye||take control of) {fields:squares}",
    "~take {fields:squares} under control",
    f"<{HOW}~(control|cover|eye|guard) {SOME}{{fields:squares}}",
)


def _denies(step: Step) -> Iterator[Values]:
    if step.kind != chess.PAWN or step.move.promotion:
        return
    board = step.after
    half = sum(chess.BB_RANKS[r] for r in ((2, 3, 4) if step.mover else (5, 4, 3)))
    fresh = board.attacks_mask(step.target) & ~step.before.attacks_mask(step.origin)
    minors = (board.knights | board.bishops) & step.enemy(board)
    for square in chess.scan_forward(fresh & half & ~board.occupied):
        for piece in chess.scan_forward(board.attackers_mask(not step.mover, square) & minors):
            yield {"square": square, "piece": piece}
            return


@move_concept("denies a square", detect=_denies, weight=1.7).says(
    "~take {square} away from {piece}",
    "~deny {piece} the square {square}",
    "~keep {piece} out of {square}",
)
def _is_denying(context: Context, square: int, piece: int) -> bool:
    reached = square in context.board.attacks(piece) and context.board.color_at(piece) == context.board.turn
    return square in context.board.attacks(context.to) and reached


def _frees(step: Step) -> Iterator[Values]:
    board = step.after
    sliders = (board.bishops | board.rooks | board.queens) & board.occupied_co[step.mover]
    best, most = None, _MORE_SQUARES - 1
    for square in chess.scan_forward(sliders & ~chess.BB_SQUARES[step.target]):
        more = board.attacks_mask(square).bit_count() - step.before.attacks_mask(square).bit_count()
        if more > most:
            best, most = square, more
    if best is not None and not step.castles:
        yield {"piece": best}


@move_concept("frees a piece", detect=_frees, weight=2.0).says(
    "~(free|activate|make room for||release|open up|wake up|give more scope to) {piece}",
    "~open lines for {piece}",
    "~give {piece} more (scope|room||air|squares)",
    "||~open (a |the )?(line|diagonal|path) for {piece}",
)
def _is_freeing(context: Context, piece: int) -> bool:
    if piece == context.to:
        raise Unknown("whether what moves becomes more active")
    friendly = context.board.color_at(piece) == context.before.turn
    slider = predicates.name_at(context.board, piece) in ("bishop", "rook", "queen")
    now, then = (len(board.attacks(piece)) for board in (context.board, context.before))
    return friendly and slider and now >= then + _MORE_SQUARES
