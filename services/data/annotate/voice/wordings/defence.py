"""Words for what a move saves. The subject is the move."""

import chess

from services.data.annotate.ideas.defence import (
    Blocks,
    Defends,
    Escapes,
    Evades,
    GivesAir,
    Parries,
    Reinforces,
    StopsThreat,
)
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import does


@does(Parries)
def parries(pen: Pen, step: Step, idea: Parries) -> str:
    passed = step.before.copy(stack=False)
    passed.push(chess.Move.null())
    return pen.say(
        (
            "~parry the threat of {san}",
            "~stop {san}",
            "~take care of {san}",
            "~rule out {san}",
            "~deal with the threat of {san}",
        ),
        san=pen.other_move(passed, idea.move),
    )


@does(Blocks)
def blocks(pen: Pen, step: Step, idea: Blocks) -> str:
    return pen.say(
        ("~block the check", "~interpose", "~interpose against {checker}", "~shut out {checker}"),
        checker=pen.at(step.before, idea.checker),
    )


@does(Evades)
def evades(pen: Pen, step: Step, idea: Evades) -> str:
    return pen.say(("~step out of check", "~move out of the check", "~step aside", "~walk out of the check"))


@does(Escapes)
def escapes(pen: Pen, step: Step, idea: Escapes) -> str:
    return pen.say(
        (
            "~move {own} out of reach of {attacker}",
            "~rescue {own} from {attacker}",
            "~sidestep {attacker}",
            "~bring {own} to safety",
            "~step out of reach of {attacker}",
            "~dodge the attack by {attacker}",
            "~take {own} out of the way of {attacker}",
        ),
        own=pen.at(step.before, step.origin),
        attacker=pen.at(step.before, idea.attacker),
    )


@does(Defends)
def defends(pen: Pen, step: Step, idea: Defends) -> str:
    return pen.say(
        (
            "~defend {wards}",
            "~protect {wards}",
            "~guard {wards}",
            "~give {wards} a defender",
            "~look after {wards}",
            "~come to the aid of {wards}",
        ),
        wards=pen.row(step.after, idea.wards[:2]),
    )


@does(Reinforces)
def reinforces(pen: Pen, step: Step, idea: Reinforces) -> str:
    return pen.say(
        (
            "~defend {ward} once more",
            "~shore up {ward}",
            "~support {ward}",
            "~add a defender to {ward}",
            "~cover {ward} once more",
        ),
        ward=pen.at(step.after, idea.ward),
    )


@does(GivesAir)
def gives_air(pen: Pen, step: Step, idea: GivesAir) -> str:
    king = step.after.king(step.mover)
    return pen.say(
        (
            "~give {king} some air",
            "~make luft for {king}",
            "~give {king} an escape square",
            "~open a window for {king}",
        ),
        king=pen.at(step.after, king if king is not None else step.target),
    )


@does(StopsThreat)
def stops_threat(pen: Pen, step: Step, idea: StopsThreat) -> str:
    passed = step.before.copy(stack=False)
    passed.push(chess.Move.null())
    options = (
        ("~sidestep {san}", "~avoid {san}", "~step out of {san}")
        if idea.check
        else ("~prevent {san}", "~stop {san}", "~rule out {san}")
    )
    return pen.say(options, san=pen.other_move(passed, idea.threat))
