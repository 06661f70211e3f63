"""How a candidate is brought up, what it does, and what on the board speaks against it."""

from __future__ import annotations

from services.data.annotate.ideas.defence import Defends, Reinforces, StopsThreat
from services.data.annotate.ideas.lines import Pins
from services.data.annotate.ideas.pressure import Attacks, Forks, Levers, PilesUp
from services.data.annotate.ideas.shape import Blockades, Covers, Develops, OpensFile, TakesFile
from services.data.annotate.ideas.strikes import Captures
from services.data.annotate.standing import Loss
from services.data.annotate.voice.deeds import STATES, phrase, selected, verbs
from services.data.annotate.voice.pen import Pen, finite
from services.data.annotate.voice.prose import sentence
from services.data.annotate.voice.topic import Topic

_OF_THE_MOVER = (
    Captures,
    Attacks,
    Forks,
    Pins,
    PilesUp,
    Levers,
    Defends,
    Reinforces,
    StopsThreat,
    Develops,
    OpensFile,
    TakesFile,
    Blockades,
    Covers,
)
"""Ideas that can be said of the side as well as of the move."""

_INTRODUCTIONS = (
    "{m} {does}",
    "{m} {does}",
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
)
_FORCING = (
    "{m} {does}",
    "{m} {does}",
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
_AFTER_QUESTION = ("it {does}", "it {does}", "this {does}")
_WITH_SIDE = ("with {m}, {us} {acts}", "with {m} {us} {acts}")
_QUIET = ("{m} is a quiet move", "{m} is quiet", "{m} looks quiet", "{m} is a calm move")
_PLAIN = ("{m} is possible", "{m} is an option", "{m} deserves a look")
_DRAWBACKS = (
    "but it {does}",
    "the drawback is that it {does}",
    "however, it {does}",
    "the catch: it {does}",
    "unfortunately, it {does}",
    "still, it {does}",
)
_BAD = (Loss.SOME, Loss.MUCH, Loss.EVERYTHING)


def introduce(pen: Pen, topic: Topic) -> list[str]:
    """Brings the move up and says what it does."""
    step = topic.candidate.step
    ideas = selected(topic.candidate, pen.length.ideas)
    if not ideas:
        return [sentence(pen.say(_QUIET if topic.candidate.quiet else _PLAIN, m=topic.name))]
    if pen.chance(pen.voice.asks):
        question = sentence(pen.say(_QUESTIONS, m=topic.name))
        return [question, sentence(pen.say(_AFTER_QUESTION, **verbs(pen, step, ideas)))]
    if all(isinstance(idea, _OF_THE_MOVER) for idea in ideas) and pen.chance(0.15):
        acts = finite(phrase(pen, step, ideas), pen.us)
        return [sentence(pen.say(_WITH_SIDE, m=topic.name, us=pen.us, acts=acts))]
    options = _introductions(topic, any(isinstance(idea, STATES) for idea in ideas))
    return [sentence(pen.say(options, m=topic.name, us=pen.us, **verbs(pen, step, ideas)))]


def _introductions(topic: Topic, states: bool) -> tuple[str, ...]:
    if not states:
        return _INTRODUCTIONS
    return _FORCING[:1] if topic.candidate.quiet else _FORCING


def drawback(pen: Pen, topic: Topic) -> list[str]:
    """What speaks against it on the board, for a move that will be dropped."""
    found = [idea for idea in topic.candidate.ideas if -50 < idea.weight < 0]
    wanted = 0.75 if topic.candidate.loss in _BAD else 0.2
    if not found or topic.candidate.is_best or not pen.chance(wanted):
        return []
    worst = min(found, key=lambda idea: idea.weight)
    return [sentence(pen.say(_DRAWBACKS, **verbs(pen, topic.candidate.step, [worst])))]
