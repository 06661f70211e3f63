"""Words for contacts between pieces."""

import chess

from services.data.annotate.facts.mates import MateNow, MateThreat
from services.data.annotate.facts.tactics import (
    Discovery,
    Fork,
    Loose,
    Overloaded,
    Pin,
    Pressed,
    Skewer,
)
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import states


@states(Loose)
def loose(pen: Pen, board: chess.Board, fact: Loose) -> str:
    piece = pen.at(board, fact.square)
    if len(fact.attackers) > 1:
        return pen.say(
            (
                "{piece} is undefended and attacked by {attackers}",
                "{attackers} both attack {piece}, which is undefended",
                "{piece} is hanging",
                "{piece} has no defender and is attacked by {attackers}",
            )
            if len(fact.attackers) == 2
            else ("{piece} is hanging", "{piece} is en prise", "{piece} is attacked and undefended"),
            piece=piece,
            attackers=pen.row(board, fact.attackers),
        )
    return pen.say(
        (
            "{piece} is attacked by {attacker} and undefended",
            "{attacker} attacks {piece}, which nothing defends",
            "{piece} hangs to {attacker}",
            "{piece} is loose and under attack from {attacker}",
            "nothing defends {piece} against {attacker}",
            "{piece} is en prise to {attacker}",
            "{attacker} hits {piece}, which has no protection",
            "{piece} has no defender, and {attacker} attacks it",
            "{piece} is hanging",
        ),
        piece=piece,
        attacker=pen.at(board, fact.attackers[0]),
    )


@states(Pressed)
def pressed(pen: Pen, board: chess.Board, fact: Pressed) -> str:
    options = [
        "{attackers} {hit} {piece}",
        "{piece} is under attack from {attackers}",
    ]
    if len(fact.attackers) > len(fact.defenders):
        options += ["{piece} is attacked {times} and defended {defences}"]
    if len(fact.defenders) == 1:
        options += [
            "{piece} is attacked by {attackers} and defended only by {defender}",
            "only {defender} defends {piece}, and {attackers} {hit} it",
            "{piece} relies on {defender} for protection, and {attackers} {hit} it",
        ]
    return pen.say(
        options,
        piece=pen.at(board, fact.square),
        times=pen.times(len(fact.attackers)),
        defences=pen.times(len(fact.defenders)),
        attackers=pen.row(board, fact.attackers),
        defender=pen.at(board, fact.defenders[0]),
        hit=pen.pick(("attack", "hit")) + ("s" if len(fact.attackers) == 1 else ""),
    )


@states(Pin)
def pin(pen: Pen, board: chess.Board, fact: Pin) -> str:
    return pen.say(
        (
            "{pinned} is pinned to {behind} by {pinner}",
            "{pinner} pins {pinned} to {behind}",
            "{pinned} is pinned against {behind}",
            "{pinner} ties {pinned} to {behind}",
            "{pinner} has {pinned} in a pin against {behind}",
            "{pinned} is pinned by {pinner}",
            "{pinned} is in a pin against {behind}",
        ),
        pinned=pen.at(board, fact.pinned),
        pinner=pen.at(board, fact.pinner),
        behind=pen.at(board, fact.behind),
    )


@states(Skewer)
def skewer(pen: Pen, board: chess.Board, fact: Skewer) -> str:
    return pen.say(
        (
            "{attacker} skewers {front} and {behind}",
            "{attacker} has {front} and {behind} on a skewer",
            "{attacker} attacks {front}, and behind {front} stands {behind}",
        ),
        attacker=pen.at(board, fact.attacker),
        front=pen.at(board, fact.front),
        behind=pen.at(board, fact.behind),
    )


@states(Fork)
def fork(pen: Pen, board: chess.Board, fact: Fork) -> str:
    return pen.say(
        (
            "{attacker} forks {targets}",
            "{attacker} has {targets} in a fork",
            "{attacker} attacks {targets} at once",
        ),
        attacker=pen.at(board, fact.attacker),
        targets=pen.row(board, fact.targets[:3]),
    )


@states(Overloaded)
def overloaded(pen: Pen, board: chess.Board, fact: Overloaded) -> str:
    return pen.say(
        (
            "{guard} is overloaded: it alone defends {wards}",
            "{guard} alone guards {wards}",
            "{wards} depend on {guard} alone",
            "{guard} has two jobs at once: it is the only defender of {wards}",
            "{guard} is the only defender of {wards}",
            "{guard} is overworked, since it alone holds {wards}",
        ),
        guard=pen.at(board, fact.defender),
        wards=pen.row(board, fact.wards[:2]),
    )


@states(Discovery)
def discovery(pen: Pen, board: chess.Board, fact: Discovery) -> str:
    return pen.say(
        (
            "if {screen} moves, {slider} hits {target}",
            "{slider} is lined up with {target} behind {screen}",
            "only {screen} stands between {slider} and {target}",
            "a move of {screen} would uncover an attack by {slider} on {target}",
            "{screen} masks an attack by {slider} on {target}",
            "once {screen} moves, {slider} attacks {target}",
        ),
        screen=pen.at(board, fact.screen),
        slider=pen.at(board, fact.slider),
        target=pen.at(board, fact.target),
    )


@states(MateNow)
def mate_now(pen: Pen, board: chess.Board, fact: MateNow) -> str:
    return pen.say(
        ("there is a mate in one", "{side.has} a mate in one", "there is mate in one with {move}"),
        side=pen.side(fact.side),
        move=pen.other_move(board, fact.moves[0]),
    )


@states(MateThreat)
def mate_threat(pen: Pen, board: chess.Board, fact: MateThreat) -> str:
    passed = board.copy(stack=False)
    passed.push(chess.Move.null())
    party = pen.side(fact.side)
    return pen.say(
        (
            "{side.do[threaten]} mate with {san}",
            "{side.do[threaten]} mate by {san}",
            "{san} is threatened",
            "if it were {owner} turn, {san} would be mate",
            "given another tempo, {side} would mate with {san}",
            "{san} is in the air",
        ),
        side=party,
        owner=party.owner,
        san=pen.other_move(passed, fact.moves[0]),
    )
