"""Why a candidate is kept or dropped: what it gives away against the best move."""

from __future__ import annotations

from services.data.annotate.case import Candidate, Case
from services.data.annotate.standing import Loss, Standing
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.prose import sentence
from services.data.annotate.voice.topic import Topic

_DROPPED = {
    "notebook": ("not good enough", "rejected", "no", "off the list", "not this one", "that rules it out"),
    "annotator": ("not good enough", "that rules it out", "that will not do", "so that is out"),
    "coach": (
        "not good enough",
        "so that is out",
        "we can cross it off",
        "that is not it",
        "not this one",
        "that rules it out",
    ),
    "calculator": (
        "not good enough",
        "I drop it",
        "so no",
        "that is not it",
        "that will not do",
        "not this one",
        "no",
    ),
}
_AS_GOOD = (
    "{m} is just as good",
    "{it} is just as good",
    "{it} is every bit as good",
    "{it} is a close second",
    "{it} gives away next to nothing",
    "{it} is fully playable",
)
_WEAKER = (
    "{it} is a little weaker than {best}",
    "{it} promises less than {best}",
    "{it} is not quite as good as {best}",
    "{it} is slightly weaker than {best}",
    "{it} falls a little short of {best}",
    "{it} is less precise than {best}",
)
_GIVES_PART = (
    "{it} gives away part of the advantage",
    "{it} lets slip part of the advantage",
    "{it} hands back some of the advantage",
    "{it} surrenders part of {us.owner} edge",
)
_GIVES_ALL = (
    "{it} lets {them.object_} equalise",
    "{it} gives away the advantage",
    "{it} lets the advantage slip",
    "{it} throws away all of the advantage",
    "{it} allows {them.object_} to equalise",
)
_HANDS_OVER = (
    "{it} hands {them.object_} the advantage",
    "{it} gives {them.object_} the upper hand",
    "{it} turns the tables",
    "{it} hands the advantage to {them.object_}",
    "{it} lets {them.object_} take over",
    "{it} plays into {them.owner} hands",
    "{it} leaves {them.object_} with the better game",
)
_LOSES = (
    "{it} loses",
    "{it} loses outright",
    "{it} is a blunder",
    "{it} simply loses",
    "{it} loses on the spot",
    "{it} hands {them.object_} the advantage",
)
_STILL_WINS = (
    "{it} wins as well",
    "{it} wins too",
    "{it} also wins",
    "{it} still wins",
)
_WORSENS = ("{it} only makes things worse", "{it} makes matters worse", "{it} adds to the trouble")


def judge(pen: Pen, case: Case, topic: Topic, *, best_name: str | None) -> list[str]:
    """Why a candidate that is not the best is dropped; with `best_name` it may be compared."""
    candidate = topic.candidate
    said = _relative(pen, case, candidate, best_name)
    parts = (
        [sentence(said.format(it=_it(pen, topic), m=topic.name, best=best_name, us=pen.us, them=pen.them))]
        if said
        else []
    )
    if candidate.loss in (Loss.SOME, Loss.MUCH, Loss.EVERYTHING) and pen.chance(0.45 if parts else 0.75):
        parts.append(sentence(pen.pick(_DROPPED[pen.voice.name])))
    return parts


def _it(pen: Pen, topic: Topic) -> str:
    """The candidate as a subject: by name when another move was spoken of last."""
    return "it" if pen.topic == topic.name else topic.name


def _relative(pen: Pen, case: Case, candidate: Candidate, best_name: str | None) -> str | None:
    if candidate.loss == Loss.NOTHING:
        return pen.pick(_AS_GOOD) if pen.chance(0.7) else None
    return _verdict(pen, case, candidate, best_name) if pen.chance(0.75) else None


def _verdict(pen: Pen, case: Case, candidate: Candidate, best_name: str | None) -> str | None:
    best, own = case.best.standing, candidate.standing
    if own == Standing.WINNING:
        return pen.pick((*_STILL_WINS, *(_WEAKER if best_name else ())))
    if best > own == Standing.LOST:
        return pen.pick(_LOSES)
    if best >= Standing.SLIGHTLY_BETTER:
        if own >= Standing.SLIGHTLY_BETTER:
            return pen.pick((*_GIVES_PART, *(_WEAKER if best_name else ())))
        return pen.pick(_GIVES_ALL if own == Standing.EQUAL else _HANDS_OVER)
    if best == Standing.EQUAL and own < Standing.EQUAL:
        return pen.pick(_HANDS_OVER)
    if best < Standing.EQUAL:
        return pen.pick((*_WORSENS, *(_WEAKER if best_name else ())))
    return pen.pick(_WEAKER) if best_name else None
