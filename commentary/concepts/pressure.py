"""What a move presses on: attacks, forks, pins, trades offered."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, move_concept, of_moved
from commentary.concepts.pawns import neighbours
from commentary.concepts.tactics import fork_targets, is_fork, is_pin, pins_on, undefended
from commentary.context import Context, Unknown
from commentary.exchange import worth
from commentary.step import Step
from commentary.wording import HOW


def _attacked_before(step: Step, target: chess.Square) -> bool:
    return bool(step.before.attacks_mask(step.origin) & chess.BB_SQUARES[target])


def _forks(step: Step) -> Iterator[Values]:
    targets = fork_targets(step.after, step.target)
    if len(targets) >= 2 and step.arrived != chess.KING and not step.castles:
        yield {"targets": targets[:3]}


move_concept("forks", detect=_forks, holds=of_moved(is_fork, "attacker"), weight=7.0).says(
    "~fork {targets:prey}",
    "~attack {targets:prey} (at the same time|simultaneously||at once)",
)


def _attacks(step: Step) -> Iterator[Values]:
    forked = fork_targets(step.after, step.target)
    if step.castles or (len(forked) >= 2 and step.arrived != chess.KING):
        return
    fresh = [t for t in forked if not _attacked_before(step, t) and worth(step.after, t) < 100]
    if fresh:
        yield {"targets": sorted(fresh, key=lambda target: -worth(step.after, target))[:2]}


def _hits(context: Context, targets: Sequence[int]) -> bool:
    return all(predicates.attacks(context.board, context.to, target) for target in targets)


move_concept("attacks", detect=_attacks, holds=_hits, weight=4.0).says(
    "~(attack|hit||harass|bother|chase|question|kick|target) {targets:prey}( at once| with tempo)?",
    "~(go after|take aim at||aim at|look at) {targets:prey}",
    "~put the question to {targets:prey}",
    "||~(pile up on|put pressure on|put more pressure on|turn on) {targets:prey}",
    f"<{HOW}~(attack|hit|target) {{targets:prey}}",
)


def _levers(step: Step) -> Iterator[Values]:
    prey = step.after.attacks_mask(step.target) & step.enemy(step.after) & step.after.pawns
    if step.arrived == chess.PAWN and prey:
        yield {"targets": list(chess.scan_forward(prey))}


@move_concept("pawn strikes", detect=_levers, weight=3.5).says(
    "~challenge {targets:prey}",
    "~(strike at|chip away at|hit at) {targets:prey}",
    "~attack {targets:prey} with a pawn",
)
def _strikes(context: Context, targets: Sequence[int]) -> bool:
    pawn = predicates.is_pawn(context.board, context.to)
    if not pawn and _hits(context, targets):
        raise Unknown("a piece challenges another")
    return pawn and _hits(context, targets)


def _newly_attacked(step: Step) -> Iterator[chess.Square]:
    """What the moved piece attacks and did not attack before."""
    if step.castles:
        return
    mask = step.after.attacks_mask(step.target) & step.enemy(step.after) & ~step.after.kings
    for target in chess.scan_forward(mask):
        if not _attacked_before(step, target) or step.victim is not None:
            yield target


def _outnumbers(step: Step) -> Iterator[Values]:
    for target in _newly_attacked(step):
        (now, guards), (then, guarded) = (
            [board.attackers_mask(side, target).bit_count() for side in (step.mover, not step.mover)]
            for board in (step.after, step.before)
        )
        if now > guards >= 1 and then <= guarded:
            yield {"target": target, "order": now if 2 <= now <= 4 else None, "times": now, "guards": guards}


@move_concept("adds an attacker", detect=_outnumbers, weight=3.6).says(
    "~(bring||add) a {order:ordinal} attacker against {target}",
    "~attack {target} (a {order:ordinal} time|once more)",
    "~put pressure on {target}, which is attacked {times} and defended {guards:times}",
)
def _adds_attacker(context: Context, target: int, order: int | None = None, **counted: int) -> bool:
    hitting = predicates.attackers(context.board, target)
    there = {"times": len(hitting), "guards": len(predicates.defenders(context.board, target))}
    enough = counted == there if counted else len(hitting) >= 2
    return context.to in hitting and enough and order in (None, len(hitting))


def _targets_weakness(step: Step) -> Iterator[Values]:
    """A pinned piece, or a pawn that is undefended or isolated."""
    board, fresh = step.after, list(_newly_attacked(step))
    pinned = {pin["pinned"] for pin in pins_on(board) if pin["pinner"] != step.target} if fresh else set()
    pawns = board.pieces_mask(chess.PAWN, not step.mover)
    for target in fresh:
        if not pawns & chess.BB_SQUARES[target]:
            flaw = "pinned" if target in pinned else None
        elif step.arrived == chess.PAWN:
            flaw = None
        else:
            flaw = "undefended" if undefended(board, target) else None
            flaw = flaw or (None if pawns & neighbours(target) else "isolated")
        if flaw:
            yield {"target": target, "flaw": flaw}
            return


@move_concept(
    "targets a weakness", detect=_targets_weakness, weight=lambda b, v: 4.4 if v["flaw"] == "pinned" else 2.4
).says("~(attack|take aim at|go after|put pressure on||pile up on|turn on) {target}, which is {flaw:word}")
def _is_flawed(context: Context, target: int, flaw: str) -> bool:
    flaws = ("isolated", "backward", "undefended", "pinned")
    return flaw in flaws and predicates.IS[flaw](context.board, target) and _hits(context, [target])


def _offers_trade(step: Step) -> Iterator[Values]:
    board = step.after
    if step.arrived in (chess.PAWN, chess.KING) or step.castles or undefended(board, step.target):
        return
    same = board.pieces_mask(step.arrived, not step.mover) & board.attacks_mask(step.target)
    for target in chess.scan_forward(same):
        if not undefended(board, target):
            yield {"target": target, "kind": step.arrived}
            return


@move_concept("offers a trade", detect=_offers_trade, weight=3.0).says(
    "~(offer|propose) (an exchange|a trade) of (the )?{kind}s",
    "~offer to (exchange||trade|swap) (the )?{kind}s",
    "~oppose {target}",
)
def _trade_offered(context: Context, kind: int | None = None, target: int | None = None) -> bool:
    board, moved = context.board, context.to
    prey = (
        [s for s in board.attacks(moved) if board.color_at(s) == board.turn] if target is None else [target]
    )
    if kind not in (None, board.piece_type_at(moved)) or not predicates.defenders(board, moved):
        return False
    return any(
        predicates.name_at(board, square) == predicates.name_at(board, moved)
        and predicates.attacks(board, moved, square)
        and predicates.attacks(board, square, moved)
        and predicates.defenders(board, square)
        for square in prey
    )


def _uncovers(step: Step) -> Iterator[Values]:
    board = step.after
    sliders = (board.bishops | board.rooks | board.queens) & step.own(board)
    prey = step.enemy(board) & ~board.pawns & ~chess.BB_SQUARES[step.target]
    for slider in chess.scan_forward(sliders & ~chess.BB_SQUARES[step.target]):
        fresh = board.attacks_mask(slider) & ~step.before.attacks_mask(slider) & prey
        for target in chess.scan_forward(fresh & ~board.kings):
            if worth(board, target) > worth(board, slider) or undefended(board, target):
                yield {"slider": slider, "target": target}


@move_concept("uncovers an attack", detect=_uncovers, weight=5.0).says(
    "~(uncover|unmask) an attack by {slider} on {target}",
    "~open the line for {slider} to hit {target}",
    "~uncover {slider}, which hits {target}",
    "||~uncover {slider}",
)
def _uncovered(context: Context, slider: int, target: int | None = None) -> bool:
    if slider == context.to or context.board.color_at(slider) != context.before.turn:
        return False
    prey = list(context.board.attacks(slider)) if target is None else [target]
    return any(
        predicates.attacks(context.board, slider, s) and s not in context.before.attacks(slider) for s in prey
    )


def _pins(step: Step) -> Iterator[Values]:
    if step.arrived not in (chess.BISHOP, chess.ROOK, chess.QUEEN):
        return
    for pin in pins_on(step.after):
        line = chess.ray(pin["pinned"], pin["behind"])
        on_line = line & chess.BB_SQUARES[step.origin] and step.victim is None
        if pin["pinner"] == step.target and not (on_line and _attacked_before(step, pin["pinned"])):
            yield {"pinned": pin["pinned"], "behind": pin["behind"]}


def _pin_weight(board: chess.Board, values: Values) -> float:
    return 1.4 if board.piece_type_at(values["pinned"]) == chess.PAWN else 4.5


move_concept("pins", detect=_pins, holds=of_moved(is_pin, "pinner"), weight=_pin_weight).says(
    "~(pin|tie||nail) {pinned}( down)? (to||against) {behind}",
    "~put {pinned} in a pin( against {behind})?",
    "~pin {pinned}",
)


def _unpins(step: Step) -> Iterator[Values]:
    freed = {pin["pinned"] for pin in pins_on(step.before) if pin["side"] == step.mover} - {step.origin}
    still = {pin["pinned"] for pin in pins_on(step.after, opposed=True)} if freed else set()
    for square in sorted(freed - still):
        if step.before.piece_type_at(square) != chess.PAWN:
            yield {"piece": square}


@move_concept("unpins", detect=_unpins, weight=3.3).says(
    "~unpin {piece}",
    "~break the pin on {piece}",
    "~(free {piece} from|get {piece} out of||release {piece} from) the pin",
)
def _unpinned(context: Context, piece: int) -> bool:
    friendly = context.board.color_at(piece) == context.before.turn == context.before.color_at(piece)
    was, now = (predicates.is_pinned(board, piece) for board in (context.before, context.board))
    return friendly and was and not now
