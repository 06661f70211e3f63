"""Words for open files and what stands on them."""

from collections.abc import Sequence

import chess

from services.data.annotate.facts.files import Doubled, HalfOpen, OpenFile, Seventh
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import states


@states(OpenFile)
def open_file(pen: Pen, board: chess.Board, fact: OpenFile) -> str:
    file = pen.file(fact.file)
    letter = chess.FILE_NAMES[fact.file]
    if fact.white and fact.black:
        rooks = board.rooks & chess.BB_FILES[fact.file]
        shared = all(rooks & board.occupied_co[side] for side in chess.COLORS)
        return pen.say(
            (
                "both sides have {what} on {file}",
                "both sides have {what} on the open {letter}-file",
                "{file} is open, and both sides have {what} on it",
            ),
            what="a rook" if shared else "a heavy piece",
            file=file,
            letter=letter,
        )
    if fact.white or fact.black:
        holder = pen.at(board, (fact.white or fact.black)[0])
        return pen.say(
            (
                "{holder} stands on the open {letter}-file",
                "{holder} holds the open {letter}-file",
                "{file} is open, and {holder} occupies it",
                "{holder} has taken the open {letter}-file",
                "{holder} is already on the open {letter}-file",
            ),
            holder=holder,
            letter=letter,
            file=file,
        )
    only = sum(not board.pawns & mask for mask in chess.BB_FILES) == 1
    return pen.say(
        (
            "{file} is the only open file",
            "the only open file is {file}",
            "there is just one open file, {file}",
        )
        if only
        else (
            "{file} is open",
            "{file} is open, and neither side has a rook or queen on it yet",
            "nobody has claimed the open {letter}-file yet",
            "the open {letter}-file is still up for grabs",
            "{file} is open and still unclaimed",
        ),
        file=file,
        letter=letter,
    )


def several_open(pen: Pen, files: Sequence[int]) -> str:
    """Two or more open files."""
    return pen.say(
        ("{files} are open", "{files} are wide open", "{files} are completely open"), files=pen.files(files)
    )


@states(HalfOpen)
def half_open(pen: Pen, board: chess.Board, fact: HalfOpen) -> str:
    slots = {
        "side": pen.side(fact.side),
        "file": pen.file(fact.file),
        "half": f"the half-open {chess.FILE_NAMES[fact.file]}-file",
        "target": pen.at(board, fact.target),
    }
    options = [
        "{file} is half-open for {side.object_}",
        "{side.has} {half}",
        "{side.has} {half} to work with",
    ]
    press = [piece for piece in fact.heavy if board.attacks_mask(piece) & chess.BB_SQUARES[fact.target]]
    if press:
        slots["piece"] = pen.at(board, press[0])
        options = [
            "{piece} presses against {target} on {half}",
            "{piece} bears down on {target} along {half}",
            "{piece} looks down {half} at {target}",
            "{piece} eyes {target} along {file}",
        ]
    return pen.say(options, **slots)


@states(Seventh)
def seventh(pen: Pen, board: chess.Board, fact: Seventh) -> str:
    return pen.say(
        (
            "{rook} is on the seventh rank",
            "{rook} has reached the seventh rank",
            "{rook} stands on the seventh",
            "{side.has} a rook on the seventh",
            "{rook} has invaded the seventh rank",
        ),
        rook=pen.at(board, fact.rook),
        side=pen.side(fact.side),
    )


@states(Doubled)
def doubled(pen: Pen, board: chess.Board, fact: Doubled) -> str:
    return pen.say(
        (
            "{pieces} are doubled on {file}",
            "{side.has} doubled on {file}",
            "{side.has} a battery on {file}",
            "{pieces} are lined up on {file}",
        ),
        pieces=pen.row(board, fact.pieces),
        side=pen.side(fact.side),
        file=pen.file(fact.file),
    )
