"""Words for the pressure a move puts on enemy pieces. The subject is the move."""

import chess

from services.data.annotate.ideas.pressure import (
    Attacks,
    Forks,
    Levers,
    OffersTrade,
    Outnumbers,
    PilesUp,
    TargetsPawn,
)
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import does


@does(Forks)
def forks(pen: Pen, step: Step, idea: Forks) -> str:
    return pen.say(
        (
            "~fork {targets}",
            "~fork {targets}",
            "~attack {targets} at the same time",
            "~attack {targets} simultaneously",
        ),
        targets=pen.row(step.after, idea.targets[:3]),
    )


@does(Attacks)
def attacks(pen: Pen, step: Step, idea: Attacks) -> str:
    return pen.say(
        (
            "~attack {targets}",
            "~hit {targets}",
            "~go after {targets}",
            "~put the question to {targets}",
            "~take aim at {targets}",
        ),
        targets=pen.row(step.after, idea.targets[:2]),
    )


@does(Levers)
def levers(pen: Pen, step: Step, idea: Levers) -> str:
    return pen.say(
        (
            "~challenge {targets}",
            "~strike at {targets}",
            "~attack {targets} with a pawn",
            "~chip away at {targets}",
            "~hit at {targets}",
        ),
        targets=pen.row(step.after, idea.targets),
    )


@does(PilesUp)
def piles_up(pen: Pen, step: Step, idea: PilesUp) -> str:
    kind = step.after.piece_type_at(idea.target)
    target = f"the pinned {chess.piece_name(kind or chess.PAWN)} on {chess.square_name(idea.target)}"
    return pen.say(
        ("~pile up on {target}", "~put more pressure on {target}", "~attack {target}", "~turn on {target}"),
        target=target,
    )


@does(Outnumbers)
def outnumbers(pen: Pen, step: Step, idea: Outnumbers) -> str:
    ordinal = {2: "a second", 3: "a third", 4: "a fourth"}.get(idea.attackers, "another")
    return pen.say(
        (
            "~bring {ordinal} attacker against {target}",
            "~add {ordinal} attacker against {target}",
            "~attack {target} {again}",
            "~put pressure on {target}, which is attacked {times} and defended {guarded}",
        ),
        ordinal=ordinal,
        target=pen.at(step.after, idea.target),
        again={2: "a second time", 3: "a third time"}.get(idea.attackers, "once more"),
        times=pen.times(idea.attackers),
        guarded=pen.times(idea.defenders),
    )


@does(OffersTrade)
def offers_trade(pen: Pen, step: Step, idea: OffersTrade) -> str:
    return pen.say(
        (
            "~offer an exchange of {name}s",
            "~offer a trade of {name}s",
            "~oppose {target}",
            "~propose a trade of {name}s",
            "~offer to exchange {name}s",
        ),
        name=chess.piece_name(idea.kind),
        target=pen.at(step.after, idea.target),
    )


@does(TargetsPawn)
def targets_pawn(pen: Pen, step: Step, idea: TargetsPawn) -> str:
    pawn = f"the {idea.flaw} pawn on {pen.squares([idea.target])}"
    return pen.say(
        (
            "~attack {pawn}",
            "~take aim at {pawn}",
            "~go after {pawn}",
            "~put pressure on {pawn}",
            "~look at {pawn}",
        ),
        pawn=pawn,
    )
