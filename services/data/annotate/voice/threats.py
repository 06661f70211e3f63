"""What the other side would do if it were its turn, and how the candidates are brought up."""

from __future__ import annotations

from collections.abc import Sequence

from services.data.annotate.case import Case, Threat
from services.data.annotate.facts.mates import MateThreat
from services.data.annotate.ideas import ideas_of
from services.data.annotate.step import Step
from services.data.annotate.voice.deeds import phrase, telling
from services.data.annotate.voice.outcome import Outcome
from services.data.annotate.voice.pen import Pen, finite, numbered
from services.data.annotate.voice.prose import sentence

_WORTH_A_WORD = 4.0
"""The weight of an idea from which on a threat is explained by it."""

_ASKS = {
    "notebook": ("threat?", "what is the threat?"),
    "annotator": (),
    "coach": ("what does the other side want?", "is there a threat?", "what would happen if we did nothing?"),
    "calculator": ("what is the threat?", "what am I up against?", "what happens if I do nothing?"),
}
_THREATENS = (
    "{them.do[threaten]} {line}, and {outcome}",
    "{them.owner} threat is {line}, when {outcome}",
    "the threat is {line}, and {outcome}",
    "left alone, {them.do[play]} {line}, and {outcome}",
    "with a free move, {them} would play {line}, and {outcome}",
    "if {us} {wait}, {line} follows, and {outcome}",
    "if {us} {pass_}, {line} comes, and {outcome}",
    "{them.do[want]} to play {line}, when {outcome}",
    "there is a threat: {line}, and {outcome}",
)


_EXPLAINED = (
    "{them.do[threaten]} {line}, which {does}",
    "{them.owner} threat is {line}, which {does}",
    "the threat is {line}, which {does}",
    "left alone, {them.do[play]} {line}, which {does}",
    "with a free move, {them} would play {line}, which {does}",
    "{them.do[want]} to play {line}, which {does}",
)


def threat(pen: Pen, case: Case) -> list[str]:
    """The threat, if there is one that gains something and that has not been named as a mate in one."""
    found = case.threat
    named = any(isinstance(fact, MateThreat) for fact in case.facts)
    if found is None or (named and len(found.play.moves) == 1):
        return []
    sentences = []
    asks = _ASKS[pen.voice.name]
    if asks and pen.chance(pen.voice.asks + 0.2):
        sentences.append(sentence(pen.pick(asks)))
    pen.forget()
    return [*sentences, *_threat(pen, found)]


def _threat(pen: Pen, found: Threat) -> list[str]:
    board, moves = found.play.boards[0], found.play.moves
    slots = {
        "them": pen.them,
        "us": pen.us,
        "wait": pen.us.verb("wait"),
        "pass_": pen.us.verb("pass"),
    }
    first = Step.of(board, moves[0])
    ideas = telling(first, ideas_of(first), _WORTH_A_WORD)
    if ideas and not found.mates and pen.chance(0.45):
        does = finite(phrase(pen, first, ideas[:1]))
        said = sentence(pen.say(_EXPLAINED, line=numbered(board, moves[:1]), does=does, **slots))
        return [said, *_rest(pen, found)]
    gain = Outcome(pen, found.play, found.evaluation).gain()
    return [sentence(pen.say(_THREATENS, line=numbered(board, moves), outcome=gain, **slots))]


def _rest(pen: Pen, found: Threat) -> list[str]:
    """What becomes of the threat after its first move."""
    moves = found.play.moves
    if len(moves) < 2 or not pen.chance(0.6):
        return []
    gain = Outcome(pen, found.play, found.evaluation).gain()
    return [sentence(f"after {numbered(found.play.boards[1], moves[1:])}, {gain}")]


_LISTS = (
    "the candidates are {moves}",
    "candidates: {moves}",
    "the main options are {moves}",
    "{moves} come to mind",
    "{moves} deserve a look",
    "the moves to consider are {moves}",
    "the choice is between {moves}",
    "{moves} are worth a look",
    "notebook|options: {moves}",
    "calculator|I look at {moves}",
    "coach|we look at {moves}",
    "calculator|I consider {moves}",
    "coach|we compare {moves}",
    "annotator|{us.has} a choice of {moves}",
    "annotator|{moves} suggest themselves",
    "the serious candidates are {moves}",
)
_TURNS = {
    "notebook": ("moves", "candidates"),
    "annotator": ("what can be done?",),
    "coach": ("so what are our options?", "now for the moves", "let us look at the moves"),
    "calculator": ("so, moves", "what are my options?", "now the moves", "let me look at concrete moves"),
}


def list_candidates(pen: Pen, names: Sequence[str]) -> list[str]:
    """A sentence that names the candidates, or one that only turns to them."""
    if len(names) >= 2 and pen.chance(0.6):
        return [sentence(pen.say(_LISTS, moves=pen.join(names), us=pen.us))]
    if pen.chance(0.5):
        return [sentence(pen.pick(_TURNS[pen.voice.name]))]
    return []
