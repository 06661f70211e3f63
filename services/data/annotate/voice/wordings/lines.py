"""Words for what a move does along lines. The subject is the move."""

from services.data.annotate.ideas.lines import Pins, Uncovers, Unpins
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import does


@does(Uncovers)
def uncovers(pen: Pen, step: Step, idea: Uncovers) -> str:
    return pen.say(
        (
            "~uncover an attack by {slider} on {target}",
            "~open the line for {slider} to hit {target}",
            "~uncover {slider}, which hits {target}",
            "~unmask an attack by {slider} on {target}",
        ),
        slider=pen.at(step.after, idea.slider),
        target=pen.at(step.after, idea.target),
    )


@does(Pins)
def pins(pen: Pen, step: Step, idea: Pins) -> str:
    return pen.say(
        (
            "~pin {pinned} to {behind}",
            "~pin {pinned} against {behind}",
            "~tie {pinned} to {behind}",
            "~put {pinned} in a pin against {behind}",
            "~pin {pinned}",
        ),
        pinned=pen.at(step.after, idea.pinned),
        behind=pen.at(step.after, idea.behind),
    )


@does(Unpins)
def unpins(pen: Pen, step: Step, idea: Unpins) -> str:
    return pen.say(
        (
            "~unpin {piece}",
            "~break the pin on {piece}",
            "~free {piece} from the pin",
            "~get {piece} out of the pin",
        ),
        piece=pen.at(step.after, idea.piece),
    )
