"""Words for what a move does to the shape of the position. The subject is the move."""

import chess

from services.data.annotate.ideas.shape import (
    Advances,
    BacksPasser,
    Blockades,
    Castles,
    Centralises,
    Covers,
    Denies,
    Develops,
    DoublesRooks,
    Frees,
    MakesPasser,
    OpensFile,
    TakesFile,
    TakesOutpost,
    TakesSeventh,
)
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import does


@does(Castles)
def castles(pen: Pen, step: Step, idea: Castles) -> str:
    wing = "kingside" if idea.kingside else "queenside"
    king = step.after.king(step.mover)
    return pen.say(
        (
            "~castle {wing}",
            "~castle {short}",
            "~get {king} out of the centre",
            "~tuck {king} away from the centre",
            "~bring {king} to safety by castling",
        ),
        wing=wing,
        short="short" if idea.kingside else "long",
        king=pen.at(step.after, king if king is not None else step.target),
    )


@does(Develops)
def develops(pen: Pen, step: Step, idea: Develops) -> str:
    name = chess.piece_name(idea.kind)
    options = [
        "~develop a {name}",
        "~bring out a {name}",
        "~develop {piece}",
        "~bring {piece} into play",
        "~develop a piece",
    ]
    if idea.left == 0:
        options += ["~complete the development of the minor pieces"] * 2
    elif idea.left < 3:
        options += ["~bring out another piece"]
    return pen.say(options, name=name, piece=pen.at(step.after, step.target))


@does(OpensFile)
def opens_file(pen: Pen, step: Step, idea: OpensFile) -> str:
    return pen.say(("~open {file}", "~open {file} up", "~clear {file}"), file=pen.file(idea.file))


@does(TakesFile)
def takes_file(pen: Pen, step: Step, idea: TakesFile) -> str:
    file = f"the {'open' if idea.open else 'half-open'} {chess.FILE_NAMES[idea.file]}-file"
    what = "a rook" if step.kind == chess.ROOK else f"{pen.side(step.mover).owner} queen"
    return pen.say(
        (
            "~occupy {file}",
            "~take {file}",
            "~put {what} on {file}",
            "~bring {what} to {file}",
            "~claim {file}",
            "~seize {file}",
        ),
        file=file,
        what=what,
    )


@does(TakesSeventh)
def takes_seventh(pen: Pen, step: Step, idea: TakesSeventh) -> str:
    return pen.say(
        (
            "~invade the seventh rank",
            "~reach the seventh rank",
            "~penetrate to the seventh",
            "~seize the seventh rank",
        )
    )


@does(DoublesRooks)
def doubles(pen: Pen, step: Step, idea: DoublesRooks) -> str:
    return pen.say(
        ("~double on {file}", "~double heavy pieces on {file}", "~stack the heavy pieces on {file}"),
        file=pen.file(idea.file),
    )


@does(TakesOutpost)
def takes_outpost(pen: Pen, step: Step, idea: TakesOutpost) -> str:
    return pen.say(
        (
            "~settle on an outpost",
            "~take an outpost on {square}",
            "~plant {piece} on an outpost",
            "~occupy an outpost",
            "~put {piece} on an outpost",
        ),
        square=pen.squares([step.target]),
        piece=pen.at(step.after, step.target),
    )


@does(Advances)
def advances(pen: Pen, step: Step, idea: Advances) -> str:
    steps = "one step" if idea.steps == 1 else f"{pen.number(idea.steps)} steps"
    options = [
        "~push the passed pawn",
        "~advance the passed pawn",
        "~run the passed pawn forward",
        "~push the passed pawn to {square}",
    ]
    if idea.steps <= 3:
        options += ["~push the passed pawn and ~leave it only {steps} from queening"] * 2
    return pen.say(options, square=pen.squares([step.target]), steps=steps)


@does(MakesPasser)
def makes_passer(pen: Pen, step: Step, idea: MakesPasser) -> str:
    return pen.say(
        (
            "~create a passed pawn on {square}",
            "~create a passed pawn",
            "~make a passed pawn on {square}",
            "~give {us.object_} a passed pawn",
        ),
        square=pen.squares([step.target]),
        us=pen.side(step.mover),
    )


@does(Blockades)
def blockades(pen: Pen, step: Step, idea: Blockades) -> str:
    return pen.say(
        ("~blockade {pawn}", "~stop {pawn} for now", "~block {pawn}", "~stand in the way of {pawn}"),
        pawn=pen.at(step.after, idea.pawn),
    )


@does(Frees)
def frees(pen: Pen, step: Step, idea: Frees) -> str:
    return pen.say(
        (
            "~free {piece}",
            "~activate {piece}",
            "~open lines for {piece}",
            "~give {piece} more scope",
            "~make room for {piece}",
            "~give {piece} more room",
        ),
        piece=pen.at(step.after, idea.piece),
    )


@does(Centralises)
def centralises(pen: Pen, step: Step, idea: Centralises) -> str:
    name = "a knight" if idea.kind == chess.KNIGHT else f"{pen.side(step.mover).owner} king"
    return pen.say(
        ("~centralise {name}", "~bring {name} towards the centre", "~bring {piece} into the centre"),
        name=name,
        piece=pen.at(step.after, step.target),
    )


@does(Covers)
def covers(pen: Pen, step: Step, idea: Covers) -> str:
    return pen.say(
        (
            "~control {squares}",
            "~cover {squares}",
            "~watch {squares}",
            "~take {squares} under control",
            "~eye {squares}",
        ),
        squares=pen.squares(idea.squares_),
    )


@does(BacksPasser)
def backs_passer(pen: Pen, step: Step, idea: BacksPasser) -> str:
    return pen.say(
        ("~get behind {pawn}", "~support {pawn} from behind", "~put a rook behind {pawn}"),
        pawn=pen.at(step.after, idea.pawn),
    )


@does(Denies)
def denies(pen: Pen, step: Step, idea: Denies) -> str:
    return pen.say(
        (
            "~take {square} away from {piece}",
            "~deny {piece} the square {square}",
            "~keep {piece} out of {square}",
        ),
        square=pen.squares([idea.square]),
        piece=pen.at(step.after, idea.piece),
    )
