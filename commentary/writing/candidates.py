"""What is said of one candidate: what it does, how the game goes on, why it is dropped."""

from __future__ import annotations

from collections.abc import Sequence

import chess

from commentary.concept import Finding, deeds_of
from commentary.exchange import gain
from commentary.names import bare
from commentary.step import Step
from commentary.template import finite, infinitive, participle
from commentary.writing.case import LOST, WINNING, Candidate, Loss
from commentary.writing.deeds import STATES, STRONG, Topic, selected, telling
from commentary.writing.follow import follow
from commentary.writing.pen import Pen, sentence

_OF_A_SIDE = (
    *("captures", "attacks", "forks", "pins", "piles up", "pawn strikes", "defends", "reinforces"),
    *("stops a threat", "develops", "opens a file", "takes a file", "blockades", "covers squares"),
)
"""Deeds that can be said of the side as well as of the move."""

_INTRODUCTIONS = (
    "{m} {does}",
    "{m} {does} ",
    "{m} {does}  ",
    "annotator,coach,calculator|the idea of {m} is to {do}",
    "coach,calculator|{m} comes to mind: it {does}",
    "annotator,coach|the point of {m} is to {do}",
    "coach,calculator|{m} deserves a look: it {does}",
    "notebook|{m}, {doing}",
    "notebook|{m}: {doing}",
    "annotator|{m} is worth a look, since it {does}",
    "calculator|{m} is an option, and it {does}",
    "coach|{m} is possible: it {does}",
    "annotator|there is {m}, which {does}",
    "calculator|there is also {m}, which {does}",
    "calculator|I could play {m}, to {do}",
    "coach|we could try {m}, to {do}",
    "annotator|{us} could consider {m}, to {do}",
    "annotator,coach|another idea is {m}, which {does}",
    "annotator,calculator|another option is {m}, which {does}",
    "coach,notebook|one idea is {m}, which {does}",
    "coach,calculator|{m} makes sense: it {does}",
    "annotator|{m} suggests itself, since it {does}",
    "calculator,notebook|{m} has a point: it {does}",
)
_FORCING = (
    "{m} {does}",
    "{m} {does} ",
    "{m} is forcing: it {does}",
    "calculator|{m} is tempting: it {does}",
    "annotator|{m} looks tempting: it {does}",
    "coach|{m} catches the eye: it {does}",
    "annotator|{m} is a forcing move: it {does}",
)
_QUESTIONS = (
    "what about {m}?",
    "and {m}?",
    "calculator|{m} next?",
    "and what about {m}?",
    "coach|can we play {m}?",
    "calculator|can I play {m}?",
)
_AFTER_QUESTION = ("it {does}", "it {does} ", "this {does}")
_WITH_SIDE = ("with {m}, {us} {acts}", "with {m} {us} {acts}")
_DRAWBACKS = (
    "but it {does}",
    "the drawback is that it {does}",
    "however, it {does}",
    "the catch: it {does}",
    "unfortunately, it {does}",
    "still, it {does}",
)


def consider(pen: Pen, topic: Topic, *, best: str | None) -> list[str]:
    """All that is said of a candidate; with `best` it may be compared with the best move."""
    pen.hand.forget()
    pen.topic = topic.name
    said, warning = introduce(pen, topic), _drawback(pen, topic)
    said += warning + follow(pen, topic, warned=bool(warning))
    return said if topic.candidate.is_best else said + _judge(pen, topic, best)


# -- what it does --------------------------------------------------------------------------------


def verbs(pen: Pen, step: Step, deeds: Sequence[Finding]) -> dict[str, str]:
    """The forms of a verb phrase, by the names that wordings use."""
    marked = pen.phrase(step, deeds)
    return {"does": finite(marked), "do": infinitive(marked), "doing": participle(marked)}


def prepared(pen: Pen, candidate: Candidate) -> str | None:
    """What a move without a deed of its own makes ready: the mover's next move, if that does something."""
    moves, boards = candidate.full.moves, candidate.full.boards
    if len(moves) < 3 or candidate.step.after.is_check():
        return None
    later = Step.of(boards[2], moves[2])
    if later.victim is not None and later.target == moves[1].to_square:
        return None  # it only takes back
    # A move that could be played at once is only made ready if it gets a new supporter.
    supported = candidate.step.after.attacks_mask(candidate.step.target) & chess.BB_SQUARES[later.target]
    at_once = boards[0].is_legal(moves[2]) and gain(boards[0], moves[2]) >= 0
    if (at_once and not supported) or not telling(later, deeds_of(later), STRONG):
        return None
    return pen.does("prepares", foe=bare(boards[2], moves[2]))


def introduce(pen: Pen, topic: Topic) -> list[str]:
    """Brings the move up and says what it does."""
    candidate = topic.candidate
    deeds = selected(candidate, pen.length.deeds)
    ready = prepared(pen, candidate) if not deeds or deeds[0].weight < STRONG else None
    if not deeds or ready:
        return [sentence(f"{topic.name} {ready or pen.does(_plain(candidate))}")]
    if pen.chance(pen.voice.asks):
        question = sentence(pen.pick(_QUESTIONS, m=topic.name))
        return [question, sentence(pen.pick(_AFTER_QUESTION, **verbs(pen, candidate.step, deeds)))]
    if all(deed.concept.name in _OF_A_SIDE for deed in deeds) and pen.chance(0.15):
        acts = finite(pen.phrase(candidate.step, deeds), pen.hand.us.verb)
        return [sentence(pen.pick(_WITH_SIDE, m=topic.name, us=pen.hand.us.word, acts=acts))]
    states = any(deed.concept.name in STATES for deed in deeds)
    options = (_FORCING[:2] if candidate.quiet else _FORCING) if states else _INTRODUCTIONS
    forms = verbs(pen, candidate.step, deeds)
    return [sentence(pen.pick(options, m=topic.name, us=pen.hand.us.word, **forms))]


def _plain(candidate: Candidate) -> str:
    return "quiet move" if candidate.quiet else "candidate"


def _drawback(pen: Pen, topic: Topic) -> list[str]:
    """What speaks against it on the board, for a move that will be dropped."""
    found = [deed for deed in topic.candidate.deeds if -50 < deed.weight < 0]
    wanted = 0.75 if topic.candidate.loss >= Loss.SOME else 0.2
    if not found or topic.candidate.is_best or not pen.chance(wanted):
        return []
    worst = min(found, key=lambda deed: deed.weight)
    return [sentence(pen.pick(_DRAWBACKS, **verbs(pen, topic.candidate.step, [worst])))]


# -- why it is dropped ---------------------------------------------------------------------------


def _judge(pen: Pen, topic: Topic, best: str | None) -> list[str]:
    candidate = topic.candidate
    it = "it" if pen.topic == topic.name else topic.name
    judged = _verdict(pen, candidate, best)
    parts = [sentence(f"{it} {judged}")] if judged else []
    if candidate.loss >= Loss.SOME and pen.chance(0.45 if parts else 0.75):
        parts += pen.talk("dropped")
    return parts


def _verdict(pen: Pen, candidate: Candidate, best: str | None) -> str | None:
    """Why it is not chosen, as far as the scores say it."""
    top, own = pen.case.best, candidate
    if own.loss == Loss.NOTHING:
        return pen.does("as good") if pen.chance(0.7) else None
    weaker = best is not None and own.score.capped < top.score.capped
    if own.degree == WINNING:
        # A move that wins is not dropped without a reason.
        return pen.does("wins the game") + (f", but is weaker than {best}" if weaker else "")
    if not pen.chance(0.8):
        return None
    compared = pen.does("weaker", other=best) if weaker else None
    same_side = top.degree > 0 < own.degree or top.degree < 0
    if compared and same_side and own.degree > LOST and pen.chance(0.5):
        return compared
    if own.degree >= top.degree:
        return compared
    return pen.does(_blame(top.degree, own.degree), them=not pen.case.mover)


def _blame(best: int, own: int) -> str:
    """The concept that says what a move gives away, by the standing with the best move and with it."""
    if own == LOST:
        return "loses the game"
    if best < 0:
        return "makes it worse"
    if own > 0:
        return "gives up part of the advantage"
    return "gives up the advantage" if own == 0 else "hands over the advantage"
