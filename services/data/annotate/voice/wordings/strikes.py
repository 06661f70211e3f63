"""Words for the blows a move strikes. The subject is the move."""

import chess

from services.data.annotate.ideas.strikes import Captures, Checks, Mates, Promotes, Stalemates, ThreatensMate
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import does


@does(Mates)
def mates(pen: Pen, step: Step, idea: Mates) -> str:
    return pen.say(("~be mate", "~be checkmate", "~mate on the spot", "~end the game at once"))


@does(Stalemates)
def stalemates(pen: Pen, step: Step, idea: Stalemates) -> str:
    return pen.say(
        ("~be stalemate", "~stalemate {them.object_}", "~leave {them.object_} without a legal move"),
        them=pen.them,
    )


@does(Captures)
def captures(pen: Pen, step: Step, idea: Captures) -> str:
    victim = pen.at(step.before, idea.victim)
    if idea.en_passant:
        return pen.say(("~take {victim} en passant", "~capture {victim} en passant"), victim=victim)
    options = ["~take {victim}", "~capture {victim}", "~remove {victim}"]
    if idea.loose:
        options = [
            "~take {victim}, which nothing defends",
            "~pick up {victim}",
            "~collect {victim}",
            "~grab {victim}",
        ]
    elif idea.kind == chess.PAWN:
        options += ["~grab {victim}", "~snatch {victim}"]
    elif step.kind == idea.kind and idea.kind != chess.PAWN:
        options += ["~exchange {own} for {victim}", "~trade {own} for {victim}"]
    return pen.say(options, victim=victim, own=pen.at(step.before, step.origin))


@does(Promotes)
def promotes(pen: Pen, step: Step, idea: Promotes) -> str:
    name = chess.piece_name(idea.kind)
    options = ["~promote to a {name}", "~make a new {name}", "~turn the pawn into a {name}"]
    if idea.kind == chess.QUEEN:
        options += ["~promote", "~queen"]
    return pen.say(options, name=name)


@does(Checks)
def checks(pen: Pen, step: Step, idea: Checks) -> str:
    if len(idea.checkers) > 1:
        return pen.say(("~give double check", "~be a double check"))
    options = ["~give check", "~be check", "~come with check", "~check {king}"]
    if idea.discovered:
        options = [
            "~give discovered check from {checker}",
            "~uncover a check by {checker}",
            "~give a discovered check",
        ]
    replies = "one legal reply" if idea.replies == 1 else f"{pen.number(idea.replies)} legal replies"
    if idea.replies <= 2:
        options += [option + " and ~leave only {replies}" for option in options[:2]]
    king = step.after.king(not step.mover)
    return pen.say(
        options,
        king=pen.at(step.after, king if king is not None else step.target),
        checker=pen.at(step.after, idea.checkers[0]),
        replies=replies,
    )


@does(ThreatensMate)
def threatens_mate(pen: Pen, step: Step, idea: ThreatensMate) -> str:
    passed = step.after.copy(stack=False)
    passed.push(chess.Move.null())
    return pen.say(
        (
            "~threaten mate with {san}",
            "~threaten {san}",
            "~carry the threat of {san}",
            "~prepare mate with {san}",
        ),
        san=pen.other_move(passed, idea.moves[0]),
    )
