"""What speaks against a move: pieces left loose, the moved piece exposed, spoilt pawns."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, move_concept
from commentary.concepts.pawns import neighbours
from commentary.concepts.tactics import undefended
from commentary.context import Context
from commentary.exchange import gain, worth
from commentary.step import Step


def _leaves_loose(step: Step) -> Iterator[Values]:
    """Own pieces that were defended can now be taken for nothing; pawns are not counted."""
    pieces = step.own(step.after) & ~step.after.pawns & ~step.after.kings & ~chess.BB_SQUARES[step.target]
    loose = []
    for square in chess.scan_forward(pieces):
        if undefended(step.after, square) and not undefended(step.before, square):
            takers = list(step.after.generate_legal_moves(to_mask=chess.BB_SQUARES[square]))
            loose += [square] if any(gain(step.after, move) > 0 for move in takers) else []
    if loose:
        yield {"pieces": sorted(loose, key=lambda square: -worth(step.after, square))[:2]}


@move_concept("leaves pieces loose", detect=_leaves_loose, weight=-3.0).says(
    "~leave {pieces} (hanging|undefended|without a defender||unprotected|loose|en prise|unguarded)",
    "~(abandon||desert) {pieces}",
    "~leave {pieces} in the lurch",
)
def _is_left_loose(context: Context, pieces: Sequence[int]) -> bool:
    loose = all(predicates.hangs(context.board, square) for square in pieces)
    return loose and all(predicates.defenders(context.before, square) for square in pieces)


def _exposed(step: Step) -> Iterator[Values]:
    """The moved piece can be taken, and more is lost by it than the move has gained."""
    board, square = step.after, step.target
    takers = board.generate_legal_moves(to_mask=chess.BB_SQUARES[square])
    ranked = sorted((-gain(board, m), worth(board, m.from_square), m.from_square) for m in takers)
    if step.kind != chess.KING and ranked and ranked[0][0] < 0 and gain(step.before, step.move) < 0:
        yield {"attacker": ranked[0][2]}


@move_concept("exposes the moved piece", detect=_exposed, weight=-3.5).says(
    "~put {moved} where {attacker} can take it",
    "~run into {attacker}",
    "~(put|leave) {moved} en prise to {attacker}",
    "||~(put|leave) {moved} en prise",
    "||~put {moved} where {attacker} attacks it",
)
def _can_be_taken(context: Context, attacker: int | None = None) -> bool:
    board, square = context.board, context.to
    takers = {reply.from_square for reply in board.legal_moves if predicates.captured(board, reply) == square}
    return attacker in takers if attacker is not None else bool(takers)


def _spoils(step: Step) -> Iterator[Values]:
    """The moved pawn is isolated or doubled now, and was not before; not if it may be taken at once."""
    if step.arrived != chess.PAWN or step.after.attackers_mask(not step.mover, step.target):
        return
    before, after = (board.pieces_mask(chess.PAWN, step.mover) for board in (step.before, step.after))
    if before & neighbours(step.origin) and not after & neighbours(step.target):
        yield {"flaw": "isolated"}
    elif step.victim is not None:
        file, old = (chess.BB_FILES[chess.square_file(s)] for s in (step.target, step.origin))
        if (after & file).bit_count() > 1 and (before & old).bit_count() == 1:
            yield {"flaw": "doubled"}


@move_concept("spoils the pawns", detect=_spoils, weight=-1.5).says(
    "~leave {moved} {flaw:word}",
    "~let {moved} become {flaw:word}",
    "~make {moved} {flaw:word}",
    "||~saddle {side:object} with (a|an) {flaw:word} pawn",
    "||~accept (a|an) {flaw:word} pawn on {here:square}",
)
def _is_spoilt(context: Context, flaw: str, side: bool | None = None) -> bool:
    if flaw not in ("isolated", "doubled") or side not in (None, context.before.turn):
        return False
    is_so = predicates.IS[flaw]
    return is_so(context.board, context.to) and not is_so(context.before, context.origin)
