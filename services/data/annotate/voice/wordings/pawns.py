"""Words for the pawn skeleton."""

from collections.abc import Sequence

import chess

from services.data.annotate.facts.pawns import (
    Backward,
    Centre,
    Connected,
    Doubled,
    Isolated,
    Majority,
    Passed,
    Rams,
)
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import states


@states(Passed)
def passed(pen: Pen, board: chess.Board, fact: Passed) -> str:
    slots = {
        "pawn": pen.at(board, fact.square),
        "side": pen.side(fact.side),
        "square": pen.squares([fact.square]),
        "steps": "one step" if fact.steps == 1 else f"{pen.number(fact.steps)} steps",
        "blocker": pen.at(board, fact.square if fact.blocker is None else fact.blocker),
        "moves": "one more move" if fact.steps == 1 else f"{pen.number(fact.steps)} more moves",
    }
    return pen.say(_passed_options(fact), **slots)


def _passed_options(fact: Passed) -> list[str]:
    options = [
        "{pawn} is a passed pawn",
        "{side.has} a passed pawn on {square}",
        "{side.has} a passer on {square}",
        "no pawn can stop {pawn}",
        "{pawn} is passed",
    ]
    if fact.protected:
        options += [
            "{side.has} a protected passed pawn on {square}",
            "{pawn} is a protected passer",
            "{pawn} is passed and protected",
        ] * 2
    if fact.steps <= 3:
        options += [
            "{pawn} is passed and only {steps} from queening",
            "{pawn} is just {steps} away from promotion",
            "{pawn} needs only {moves} to queen",
        ] * 2
    if fact.blocker is not None:
        options += ["{blocker} blockades {pawn}", "{pawn} is passed, but {blocker} stands in front of it"] * 2
    return options


@states(Connected)
def connected(pen: Pen, board: chess.Board, fact: Connected) -> str:
    return pen.say(
        (
            "{side.has} connected passed pawns on {squares}",
            "{side.has} connected passers on {squares}",
            "the passed pawns on {squares} are connected",
            "the pawns on {squares} are connected passers",
        ),
        side=pen.side(fact.side),
        squares=pen.squares(fact.pawns),
    )


@states(Isolated)
def isolated(pen: Pen, board: chess.Board, fact: Isolated) -> str:
    return pen.say(
        (
            "{pawn} is isolated",
            "{side.has} an isolated pawn on {square}",
            "{pawn} has no neighbours",
            "{side.has} to live with an isolated pawn on {square}",
            "{pawn} is an isolated pawn",
            "{pawn} has no fellow pawn on either neighbouring file",
        ),
        pawn=pen.at(board, fact.square),
        side=pen.side(fact.side),
        square=pen.squares([fact.square]),
    )


def several_isolated(pen: Pen, side: chess.Color, squares: Sequence[chess.Square]) -> str:
    """Two or more isolated pawns of a side in one clause."""
    return pen.say(
        (
            "{side.has} isolated pawns on {squares}",
            "{owner} pawns on {squares} are isolated",
            "{owner} pawns on {squares} are all isolated"
            if len(squares) > 2
            else "{owner} pawns on {squares} are both isolated",
        ),
        side=pen.side(side),
        owner=pen.side(side).owner,
        squares=pen.squares(squares),
    )


@states(Doubled)
def doubled(pen: Pen, board: chess.Board, fact: Doubled) -> str:
    file = chess.FILE_NAMES[chess.square_file(fact.pawns[0])]
    return pen.say(
        (
            "{side.has} doubled pawns on the {file}-file",
            "{owner} {file}-pawns are doubled",
            "{owner} pawns on {squares} are doubled",
            "{side.has} doubled pawns on {squares}",
        ),
        side=pen.side(fact.side),
        owner=pen.side(fact.side).owner,
        file=file,
        squares=pen.squares(fact.pawns),
    )


@states(Backward)
def backward(pen: Pen, board: chess.Board, fact: Backward) -> str:
    return pen.say(
        (
            "{pawn} is backward",
            "{side.has} a backward pawn on {square}",
            "{pawn} is a backward pawn",
            "{pawn} has been left behind by its neighbours",
            "{pawn} lags behind its neighbours",
        ),
        pawn=pen.at(board, fact.square),
        side=pen.side(fact.side),
        square=pen.squares([fact.square]),
    )


@states(Majority)
def majority(pen: Pen, board: chess.Board, fact: Majority) -> str:
    own = "one pawn" if fact.own == 1 else f"{pen.number(fact.own)} pawns"
    return pen.say(
        (
            "{side.has} a {wing} majority",
            "{side.has} more pawns on the {wing}",
            "{side.has} {own} against {theirs} on the {wing}",
            "{side.has} a {wing} majority of {count} against {theirs}",
            "{side.has} the {wing} majority",
        ),
        side=pen.side(fact.side),
        wing="kingside" if fact.kingside else "queenside",
        own=own,
        count=pen.number(fact.own),
        theirs="none" if fact.theirs == 0 else pen.number(fact.theirs),
    )


@states(Centre)
def centre(pen: Pen, board: chess.Board, fact: Centre) -> str:
    return pen.say(
        (
            "{side.has} pawns on {squares} in the centre",
            "{side.do[hold]} the centre with pawns on {squares}",
            "{side.has} the bigger share of the centre with pawns on {squares}",
            "{side.do[control]} the centre with pawns on {squares}",
            "{side.do[claim]} the centre with pawns on {squares}",
        ),
        side=pen.side(fact.side),
        squares=pen.squares(fact.pawns),
    )


@states(Rams)
def rams(pen: Pen, board: chess.Board, fact: Rams) -> str:
    white, black = fact.pairs[0]
    return pen.say(
        (
            "{a} and {b} block each other",
            "{a} and {b} stand head to head",
            "{a} and {b} are locked together",
        ),
        a=pen.at(board, white),
        b=pen.at(board, black),
    )
