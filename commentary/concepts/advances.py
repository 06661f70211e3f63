"""What a move does with a passed pawn, or against one."""

from collections.abc import Iterator

import chess

from commentary import predicates
from commentary.concept import Values, move_concept
from commentary.concepts.pawns import ahead, is_passed, steps, stop_of
from commentary.context import Context
from commentary.step import Step


def _pushes(step: Step) -> Iterator[Values]:
    moved = step.kind == chess.PAWN and not step.move.promotion
    if not moved or not is_passed(step.after, step.target, step.mover):
        return
    if is_passed(step.before, step.origin, step.mover):
        left = steps(step.target, step.mover)
        near, next_to_it = (left if 1 < left <= 3 else None), (step.target if left == 1 else None)
        yield {"pawn": step.origin, "near": near, "next": next_to_it}


@move_concept("pushes a passed pawn", detect=_pushes, weight=3.8).says(
    "~(push|advance) {pawn:passer} to {here:square}",
    "~(push|advance) {pawn:passer}",
    "~run {pawn:passer} forward",
    "~(push|advance) {pawn:passer} and ~leave it only {near:count} steps from queening",
    "~push {pawn:passer} to {next:square}, one step from queening",
    "||~(push|advance|run) {pawn:passer}( forward| on| further)?",
    "||~push {pawn:before}( on| further)?",
)
def _is_pushing(context: Context, pawn: int, near: int | None = None, next: int | None = None) -> bool:
    left = predicates.steps_to_go(context.to, context.before.turn)
    counted = near in (None, left) and (next is None or (next == context.to and left == 1))
    return pawn == context.origin and counted and predicates.is_passed(context.before, pawn)


def _makes_passer(step: Step) -> Iterator[Values]:
    moved = step.kind == chess.PAWN and not step.move.promotion
    was = is_passed(step.before, step.origin, step.mover)
    if moved and not was and is_passed(step.after, step.target, step.mover):
        yield {"side": step.mover}


@move_concept("makes a passed pawn", detect=_makes_passer, weight=4.2).says(
    "~(create|make||produce|obtain) a passed pawn on {here:square}",
    "~give {side:object} a passed pawn on {here:square}",
    "||~(create|make|produce|obtain) a passed pawn",
    "||~give {side:object} a passed pawn",
)
def _is_new_passer(context: Context, side: bool | None = None) -> bool:
    was, now = (
        predicates.is_passed(context.before, context.origin),
        predicates.is_passed(context.board, context.to),
    )
    return now and not was and side in (None, context.before.turn)


def _blockades(step: Step) -> Iterator[Values]:
    stop = stop_of(step.target, step.mover)
    if step.kind == chess.PAWN or not 0 <= stop < 64:
        return
    pawns = step.after.pieces_mask(chess.PAWN, not step.mover)
    if pawns & chess.BB_SQUARES[stop] and is_passed(step.after, stop, not step.mover):
        yield {"pawn": stop}


@move_concept("blockades", detect=_blockades, weight=3.0).says(
    "~(blockade|stand in the way of||block|halt|stop) {pawn}( for now)?"
)
def _is_blockading(context: Context, pawn: int) -> bool:
    board, side = context.board, context.board.color_at(pawn)
    enemy = side == board.turn and predicates.is_passed(board, pawn)
    return enemy and predicates.ahead_of(pawn, board.turn)[0] == context.to


def _backs(step: Step) -> Iterator[Values]:
    if step.arrived != chess.ROOK or chess.square_file(step.origin) == chess.square_file(step.target):
        return
    reach = step.after.attacks_mask(step.target) & step.after.pieces_mask(chess.PAWN, step.mover)
    for pawn in chess.scan_forward(reach & ahead(step.target, step.mover)):
        if is_passed(step.after, pawn, step.mover):
            yield {"pawn": pawn}


@move_concept("backs a passed pawn", detect=_backs, weight=3.0).says(
    "~get behind {pawn}",
    "~support {pawn} from behind",
    "~put a rook behind {pawn}",
)
def _is_behind(context: Context, pawn: int) -> bool:
    board, rook = context.board, context.to
    own = board.color_at(pawn) == context.before.turn and predicates.is_passed(board, pawn)
    file = chess.square_file(rook) == chess.square_file(pawn)
    behind = file and rook not in predicates.ahead_of(pawn, context.before.turn)
    return own and behind and predicates.name_at(board, rook) == "rook" and pawn in board.attacks(rook)


move_concept("recaptures", holds=lambda context: context.victim is not None, weight=3.0).says(
    "~(recapture|take back)",
    "~(recapture|take back) on {here:square}",
)
