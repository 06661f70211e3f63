"""Words for how the pieces stand."""

import chess

from services.data.annotate.facts.pieces import AtHome, BadBishop, Immobile, Outpost
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import states


@states(Outpost)
def outpost(pen: Pen, board: chess.Board, fact: Outpost) -> str:
    return pen.say(
        (
            "{piece} sits on an outpost",
            "{piece} has an outpost there",
            "no pawn can ever chase {piece} away",
            "{piece} is firmly planted on an outpost",
            "{piece} is out of reach of enemy pawns",
            "{piece} has settled on an outpost",
            "{piece} cannot be driven away by pawns",
        ),
        piece=pen.at(board, fact.square),
    )


@states(AtHome)
def at_home(pen: Pen, board: chess.Board, fact: AtHome) -> str:
    count = len(fact.pieces)
    slots = {
        "side": pen.side(fact.side),
        "other": pen.side(not fact.side),
        "number": pen.number(count),
        "minors": "one minor piece" if count == 1 else f"{pen.number(count)} minor pieces",
    }
    options = ["{side.has} {minors} still at home", "{side.has} {minors} undeveloped"]
    if count <= 2:
        slots["pieces"] = pen.row(board, fact.pieces)
        place = "at home" if count > 1 else "on its original square"
        be = "are" if count > 1 else "is"
        options += [
            "{side.has} yet to develop {pieces}",
            f"{{pieces}} {be} still {place}",
            "{side.has} still to bring out {pieces}",
        ] * 2
    if count > fact.others:
        options += [
            "{side.is_} behind in development",
            "{other.is_} ahead in development",
            "{other.is_} better developed",
        ]
    return pen.say(options, **slots)


@states(BadBishop)
def bad_bishop(pen: Pen, board: chess.Board, fact: BadBishop) -> str:
    share = "all {owner} pawns" if fact.same == fact.total else "{same} of {owner} {total} pawns"
    hemmed = ("{bishop} is hemmed in by its own pawns", "{bishop} bites on its own pawns")
    return pen.say(
        (
            f"{{bishop}} is bad: {share} stand on its colour",
            f"{{bishop}} is a bad bishop, since {share} share its colour",
            *(hemmed if fact.hemmed else ()),
        ),
        bishop=pen.at(board, fact.square),
        same=pen.number(fact.same),
        total=pen.number(fact.total),
        owner=pen.side(fact.side).owner,
    )


@states(Immobile)
def immobile(pen: Pen, board: chess.Board, fact: Immobile) -> str:
    return pen.say(
        (
            "{piece} has no squares to go to",
            "{piece} has no moves",
            "{piece} is shut in",
            "{piece} has nowhere to go",
            "{piece} cannot move",
        ),
        piece=pen.at(board, fact.square),
    )
