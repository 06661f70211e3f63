"""What a quiet move is good for: more active pieces, connected rooks, kings that approach, plans made ready."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, move_concept
from commentary.concepts.kings import is_endgame
from commentary.concepts.mates import Foe
from commentary.context import Context
from commentary.step import Step

_MORE_SQUARES = 3
"""Squares that a piece must gain to stand more actively."""


def _keeps_defended(step: Step) -> Iterator[Values]:
    if step.castles or step.kind in (chess.PAWN, chess.KING):
        return
    own = step.own(step.after) & step.own(step.before) & ~step.after.kings
    kept = step.before.attacks_mask(step.origin) & step.after.attacks_mask(step.target) & own
    wards = [s for s in chess.scan_forward(kept) if step.after.attackers_mask(not step.mover, s)]
    if wards:
        yield {"wards": wards[:2]}


@move_concept("keeps defended", detect=_keeps_defended, weight=1.2).says(
    "~keep {wards:pieces} (defended|protected||guarded)",
    "~keep an eye on {wards:pieces}",
    "~go on (defending|guarding||protecting) {wards:pieces}",
)
def _still_guards(context: Context, wards: Sequence[int]) -> bool:
    now = all(predicates.defends(context.board, context.to, ward) for ward in wards)
    return now and all(predicates.defends(context.before, context.origin, ward) for ward in wards)


def _activates(step: Step) -> Iterator[Values]:
    if step.arrived not in (chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN) or step.castles:
        return
    more = step.after.attacks_mask(step.target).bit_count()
    if more >= step.before.attacks_mask(step.origin).bit_count() + _MORE_SQUARES and not step.move.promotion:
        yield {}


@move_concept("activates the moved piece", detect=_activates, weight=1.7).says(
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


def _connects(step: Step) -> Iterator[Values]:
    if _connected(step.after, step.mover) and not _connected(step.before, step.mover):
        yield {}


def _rooks_see_each_other(board: chess.Board, side: chess.Color) -> bool:
    home = 0 if side else 7
    rooks = [s for s in predicates.all_of(board, side, "rook") if chess.square_rank(s) == home]
    return len(rooks) == 2 and predicates.defends(board, *rooks)


@move_concept("connects the rooks", detect=_connects, weight=2.0).says("~connect the rooks")
def _connects_now(context: Context) -> bool:
    was, now = (
        _rooks_see_each_other(board, context.before.turn) for board in (context.before, context.board)
    )
    return now and not was


def _approaches(step: Step) -> Iterator[Values]:
    """In an endgame, a king's step towards the nearest pawn that needs or fears it."""
    if step.kind != chess.KING or step.castles or not is_endgame(step.after):
        return
    steps = [
        (chess.square_distance(step.target, pawn), pawn, chess.square_distance(step.origin, pawn))
        for pawn in chess.scan_forward(step.after.pawns)
    ]
    near = [(now, pawn) for now, pawn, then in steps if 1 < now < then]
    if near:
        yield {"pawn": min(near)[1]}


@move_concept("brings the king nearer", detect=_approaches, weight=1.6).says(
    "~(approach|step towards|head for||walk towards) {pawn}",
    "~bring {moved} (nearer|closer) to {pawn}",
)
def _is_nearer(context: Context, pawn: int) -> bool:
    moved = predicates.name_at(context.board, context.to) == "king"
    now, then = (chess.square_distance(square, pawn) for square in (context.to, context.origin))
    return moved and predicates.is_pawn(context.board, pawn) and now < then


@move_concept("prepares", weight=1.0).says("~(prepare|make ready for|get ready for|set up||plan) {foe}")
def _follows(context: Context, foe: Foe) -> bool:
    """The engine's line goes on with that move once the other side has replied."""
    line, played = context.evidence(), len(context.moves)
    if len(line.moves) < played + 2:
        return False
    board = context.board.copy(stack=False)
    board.push_uci(line.moves[played])
    return foe(board).uci() == line.moves[played + 1]
