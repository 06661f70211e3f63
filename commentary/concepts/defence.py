"""What a move saves: threats met, checks answered, pieces defended or brought to safety."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import CONCEPTS, Finding, Values, move_concept, when
from commentary.concepts.mates import Foe, mating_moves
from commentary.concepts.tactics import undefended
from commentary.context import Context, Unknown
from commentary.exchange import passed_turn, worth
from commentary.naming import bare
from commentary.step import Step


def _parries(step: Step) -> Iterator[Values]:
    passed = passed_turn(step.before)
    if passed is None or step.after.is_game_over():
        return
    if (threats := mating_moves(passed)) and not mating_moves(step.after):
        yield {"foe": bare(passed, threats[0])}


def _stops(context: Context, foe: Foe) -> bool:
    """Whether the threatened mate in one is none any more, or the move cannot be played any more. Raises
    `Unknown` if it can, but what goes there can be taken now: "h3 stops ...Bg4"."""
    board = context.passed(context.before)
    feared = foe(board)
    parried = feared in predicates.mates_on(board) and not predicates.mates_on(context.board)
    if parried or _is_ruled_out(context, feared):
        return True
    mover, goal = context.before.turn, feared.to_square
    if not context.board.attackers(mover, goal).issubset(context.before.attackers(mover, goal)):
        raise Unknown("it may be bad now")
    return False


def _is_ruled_out(context: Context, feared: chess.Move) -> bool:
    if context.board.is_check():
        raise Unknown("a check may only delay it")
    return not context.board.is_legal(feared)


move_concept("parries", detect=_parries, holds=_stops, weight=9.0).says(
    "~(parry the threat of|take care of|deal with the threat of) {foe}",
    "~(stop|rule out|prevent||parry) {foe}",
    "||~(stop|rule out|take care of) the threat of {foe}",
)


@move_concept("avoids a check", weight=4.6).says("~(sidestep|avoid|step out of) {foe}")
def _no_check(context: Context, foe: Foe) -> bool:
    """Whether a move that would have been check is none any more, or cannot be played."""
    board = context.passed(context.before)
    feared = foe(board)
    if not board.gives_check(feared):
        return False
    return _is_ruled_out(context, feared) or not context.board.gives_check(feared)


def stopped(step: Step, threat: chess.Move) -> Iterator[Finding]:
    """What a move does to the move that the other side threatens."""
    passed = passed_turn(step.before)
    if passed is None or step.after.is_check() or step.after.is_game_over():
        return
    values = {"foe": bare(passed, threat)}
    if not step.after.is_legal(threat):
        # A piece that was taken threatens nothing: the capture says so itself.
        if threat.from_square not in (step.target, step.victim):
            yield Finding(CONCEPTS["parries"], values, 4.6)
    elif passed.gives_check(threat) and not step.after.gives_check(threat):
        yield Finding(CONCEPTS["avoids a check"], values, 4.6)


def _check_blocked(step: Step) -> Iterator[Values]:
    if step.before.is_check() and step.victim is None and step.kind != chess.KING:
        yield {"checker": chess.lsb(step.before.checkers_mask())}


def _check_left(step: Step) -> bool:
    return step.before.is_check() and step.victim is None and step.kind == chess.KING


@move_concept("blocks a check", detect=_check_blocked, weight=2.0).says(
    "~(block||interrupt|stop) the check",
    "~interpose against {checker:before}",
    "~shut out {checker:before}",
    "||~interpose",
)
def _blocks_check(context: Context, checker: int | None = None) -> bool:
    king, checkers = context.before.king(context.before.turn), list(context.before.checkers())
    if king is None or len(checkers) != 1 or checker not in (None, checkers[0]):
        return False
    return context.to in chess.SquareSet(chess.between(king, checkers[0]))


@move_concept("leaves check", detect=when(_check_left), weight=1.0).says(
    "~(step||walk|get) out of (|the )check",
    "~move out of the check",
    "~step aside",
    "||~(step|move|walk|get) the king out of (the )?check",
)
def _steps_out(context: Context) -> bool:
    return context.before.is_check() and predicates.name_at(context.before, context.origin) == "king"


def _escapes(step: Step) -> Iterator[Values]:
    if step.kind == chess.KING or step.castles:
        return
    attackers = step.before.attackers_mask(not step.mover, step.origin)
    taken = attackers & chess.BB_SQUARES[step.target]  # the capture says so itself
    if not attackers or taken or step.after.attackers_mask(not step.mover, step.target):
        return
    cheapest = min(chess.scan_forward(attackers), key=lambda square: worth(step.before, square))
    if undefended(step.before, step.origin) or worth(step.before, cheapest) < worth(step.before, step.origin):
        yield {"piece": step.origin, "attacker": cheapest}


@move_concept("escapes", detect=_escapes, weight=4.0).says(
    "~(move||take|get) {piece:before} out of reach of {attacker:before}",
    "~(rescue||save) {piece:before} from {attacker:before}",
    "~(sidestep|dodge the attack by||escape|dodge|escape the attack by) {attacker:before}",
    "~(bring||take|get) {piece:before} to safety",
    "~step out of reach of {attacker:before}",
    "||~(move|take|bring|get|pull) {piece:before} out of (reach|danger|the way) of {attacker:before}",
)
def _is_safe_now(context: Context, piece: int | None = None, attacker: int | None = None) -> bool:
    if context.before.is_castling(context.move):
        raise Unknown("a king is brought to safety that nothing attacks")
    hit = predicates.attackers(context.before, context.origin)
    right = piece in (None, context.origin) and (attacker is None or attacker in hit)
    return right and bool(hit) and not predicates.attackers(context.board, context.to)


def _guards(step: Step) -> chess.Bitboard:
    return step.after.attacks_mask(step.target) & step.own(step.after) & ~step.after.kings


def _defends(step: Step) -> Iterator[Values]:
    """Own pieces that stood attacked without a defender, and could be taken for a gain, have one now."""
    if step.castles:
        return
    wards = [
        square
        for square in chess.scan_forward(_guards(step))
        if undefended(step.before, square)
        and step.before.attackers_mask(not step.mover, square)
        and step.after.attackers_mask(not step.mover, square)
    ]
    if wards:
        yield {"wards": sorted(wards, key=lambda square: -worth(step.after, square))[:2]}


def _reinforces(step: Step) -> Iterator[Values]:
    if step.castles:
        return
    for square in chess.scan_forward(_guards(step) & ~step.before.attacks_mask(step.origin)):
        attackers = step.before.attackers_mask(not step.mover, square).bit_count()
        defenders = step.before.attackers_mask(step.mover, square).bit_count()
        friendly = step.before.color_at(square) == step.mover
        if friendly and attackers > defenders >= 1 and step.after.attackers_mask(not step.mover, square):
            yield {"wards": [square]}


def _is_guarding(context: Context, wards: Sequence[int]) -> bool:
    return all(predicates.defends(context.board, context.to, ward) for ward in wards)


move_concept("defends", detect=_defends, holds=_is_guarding, weight=3.5).says(
    "~(defend|protect|guard||cover) {wards:pieces}",
    "~(look after|come to the aid of||come to the rescue of|come to the help of) {wards:pieces}",
    "~give {wards:pieces} (a defender||protection)",
)
move_concept("reinforces", detect=_reinforces, holds=_is_guarding, weight=3.2).says(
    "~(defend|cover||protect|guard|support) {wards:pieces} (once more||again|a second time)",
    "~(shore up|support|add a defender to) {wards:pieces}",
)
