"""Words for what speaks against a move. The subject is the move."""

from services.data.annotate.ideas.drawbacks import Exposed, ForfeitsCastling, LeavesLoose, Spoils
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import does


@does(LeavesLoose)
def leaves_loose(pen: Pen, step: Step, idea: LeavesLoose) -> str:
    return pen.say(
        (
            "~leave {pieces} hanging",
            "~leave {pieces} undefended",
            "~leave {pieces} without a defender",
            "~abandon {pieces}",
            "~leave {pieces} in the lurch",
        ),
        pieces=pen.row(step.after, idea.pieces[:2]),
    )


@does(Exposed)
def exposed(pen: Pen, step: Step, idea: Exposed) -> str:
    return pen.say(
        (
            "~put {own} where {attacker} can take it",
            "~run into {attacker}",
            "~put {own} en prise to {attacker}",
            "~leave {own} en prise to {attacker}",
        ),
        own=pen.at(step.after, step.target),
        attacker=pen.at(step.after, idea.attacker),
    )


@does(ForfeitsCastling)
def forfeits_castling(pen: Pen, step: Step, idea: ForfeitsCastling) -> str:
    return pen.say(
        (
            "~give up the right to castle",
            "~give up castling",
            "~forfeit the right to castle",
            "~end any hope of castling",
        )
    )


@does(Spoils)
def spoils(pen: Pen, step: Step, idea: Spoils) -> str:
    word = "isolated" if idea.isolated else "doubled"
    article = "an isolated pawn" if idea.isolated else "a doubled pawn"
    return pen.say(
        ("~accept {article} on {square}", "~leave {pawn} {word}", "~saddle {us.object_} with {article}"),
        article=article,
        word=word,
        square=pen.squares([step.target]),
        pawn=pen.at(step.after, step.target),
        us=pen.side(step.mover),
    )
