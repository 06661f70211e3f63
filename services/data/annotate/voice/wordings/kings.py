"""Words for the safety of the kings."""

import chess

from services.data.annotate.facts.kings import (
    Active,
    BackRank,
    Bare,
    Besieged,
    Central,
    Checked,
    Line,
    Opposition,
    Sheltered,
)
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import states


@states(Checked)
def checked(pen: Pen, board: chess.Board, fact: Checked) -> str:
    slots = {
        "side": pen.side(fact.side),
        "checkers": pen.row(board, fact.checkers),
        "king": pen.at(board, fact.king),
        "replies": "one legal reply" if fact.replies == 1 else f"{pen.number(fact.replies)} legal replies",
        "be": "is" if fact.replies == 1 else "are",
    }
    if len(fact.checkers) > 1:
        return pen.say(
            ("{side.is_} in check, and it is double check from {checkers}", "{checkers} both give check"),
            **slots,
        )
    options = [
        "{side.is_} in check from {checkers}",
        "{checkers} gives check",
        "{checkers} is giving check",
        "{side.is_} in check from {checkers}, and there {be} only {replies}",
        "{checkers} gives check, and there {be} just {replies}",
    ]
    if fact.replies > 6:
        options = options[:3]
    return pen.say(options, **slots)


@states(Sheltered)
def sheltered(pen: Pen, board: chess.Board, fact: Sheltered) -> str:
    return pen.say(
        (
            "{king} sits behind the pawns on {pawns}",
            "{king} is tucked away behind its pawns on {pawns}",
            "{king} is sheltered by the pawns on {pawns}",
            "{king} has its pawns on {pawns} in front of it",
            "{king} is covered by its pawns on {pawns}",
            "{king} hides behind the pawns on {pawns}",
        ),
        king=pen.at(board, fact.king),
        pawns=pen.squares(fact.pawns),
    )


@states(Bare)
def bare(pen: Pen, board: chess.Board, fact: Bare) -> str:
    return pen.say(
        (
            "{king} has no pawn cover",
            "{king} stands without pawn cover",
            "not a single pawn covers {king}",
            "no pawn shelters {king}",
            "{king} has no pawn cover at all",
        ),
        king=pen.at(board, fact.king),
    )


@states(Central)
def central(pen: Pen, board: chess.Board, fact: Central) -> str:
    slots = {
        "king": pen.at(board, fact.king),
        "side": pen.side(fact.side),
        "owner": pen.side(fact.side).owner,
    }
    if not fact.kingside and not fact.queenside:
        return pen.say(
            (
                "{king} is stuck in the centre, and {side} can no longer castle",
                "{side.has} lost the right to castle, and {king} is still in the centre",
                "{king} stands in the centre and {side} can no longer castle",
                "{king} is caught in the centre",
                "{side} can no longer castle",
            ),
            **slots,
        )
    wing = (
        "on either side" if fact.kingside and fact.queenside else "kingside" if fact.kingside else "queenside"
    )
    return pen.say(
        (
            "{king} is still in the centre",
            "{king} is still in the centre, but {side} can still castle {wing}",
            "{side.do[keep]} the right to castle {wing}",
            "{king} has not left the centre yet",
            "{side} may still castle {wing}",
            "{side} still {has} the right to castle {wing}",
        ),
        wing=wing,
        has=pen.side(fact.side).verb("have"),
        **slots,
    )


@states(Line)
def line(pen: Pen, board: chess.Board, fact: Line) -> str:
    word = "open" if fact.open else "half-open"
    slots = {
        "king": pen.at(board, fact.king),
        "file": pen.file(fact.file),
        "word": word,
        "letter": chess.FILE_NAMES[fact.file],
        "place": "in front of" if chess.square_file(fact.king) == fact.file else "next to",
    }
    options = [
        "{file} is {word} {place} {king}",
        "the {word} {letter}-file runs towards {king}",
        "the {word} {letter}-file leads straight to {king}",
        "the {word} {letter}-file runs right past {king}",
    ]
    if chess.square_file(fact.king) != fact.file:
        options = [options[0], options[3]]
    if fact.heavy:
        slots["piece"] = pen.at(board, fact.heavy[0])
        options = [
            "{file} is {word} {place} {king}, and {piece} already stands on it",
            "{file} is {word} {place} {king}, and {piece} occupies it",
        ]
    return pen.say(options, **slots)


@states(Besieged)
def besieged(pen: Pen, board: chess.Board, fact: Besieged) -> str:
    count = pen.number(len(fact.attackers))
    colour = "black" if fact.side else "white"
    if len(fact.attackers) > 3:
        return pen.say(
            (
                "{count} {colour} pieces bear on squares around {king}",
                "{count} {colour} pieces aim at squares next to {king}",
                "{count} enemy pieces eye squares around {king}",
            ),
            count=count,
            colour=colour,
            king=pen.at(board, fact.king),
        )
    return pen.say(
        (
            "{pieces} {all}bear on squares around {king}",
            "{pieces} {all}aim at squares next to {king}",
            "{pieces} {all}eye squares around {king}",
            "{pieces} are {all}trained at squares around {king}",
        ),
        pieces=pen.row(board, fact.attackers),
        all="both " if len(fact.attackers) == 2 else "all ",
        king=pen.at(board, fact.king),
    )


@states(BackRank)
def back_rank(pen: Pen, board: chess.Board, fact: BackRank) -> str:
    return pen.say(
        (
            "{king} is boxed in by its own pawns on {pawns}",
            "{owner} back rank is weak",
            "the back rank is a worry for {side.object_}",
            "the pawns on {pawns} box in {king}, and no rook or queen guards {owner} back rank",
            "{king} is boxed in by its own pawns, and no rook or queen guards {owner} back rank",
            "{king} has no luft, and {owner} back rank is unguarded",
        ),
        king=pen.at(board, fact.king),
        pawns=pen.squares(fact.pawns),
        owner=pen.side(fact.side).owner,
        side=pen.side(fact.side),
    )


@states(Active)
def active(pen: Pen, board: chess.Board, fact: Active) -> str:
    return pen.say(
        (
            "{king:own} is active, while {other:own} is still back home",
            "{king:own} has already come out into play",
            "{king:own} is already in play, while {other:own} is passive",
            "{king:own} is well up the board",
        ),
        king=pen.at(board, fact.king),
        other=pen.at(board, fact.other),
    )


@states(Opposition)
def opposition(pen: Pen, board: chess.Board, fact: Opposition) -> str:
    mover = pen.side(fact.mover)
    return pen.say(
        (
            "the kings stand in opposition, and it is {mover} who must give way",
            "the kings face each other, one square apart, and {mover.is_} to move",
            "the kings stand in direct opposition with {mover.object_} to move",
        ),
        mover=mover,
    )
