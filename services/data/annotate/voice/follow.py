"""How the game goes on after a candidate: the engine's line in a player's words, and what it comes to."""

from __future__ import annotations

from services.data.annotate.case import Case
from services.data.annotate.ideas import Idea, ideas_of
from services.data.annotate.ideas.strikes import Captures
from services.data.annotate.standing import Loss
from services.data.annotate.step import Step
from services.data.annotate.voice.deeds import phrase, telling
from services.data.annotate.voice.outcome import Outcome, with_verdict
from services.data.annotate.voice.pen import Pen, finite, numbered
from services.data.annotate.voice.prose import sentence
from services.data.annotate.voice.topic import Topic

_WORTH_A_WORD = 3.2
"""The weight of an idea from which on a reply is explained by it."""

_AFTER = (
    "after {line}, {outcome}",
    "after {line}, {outcome}",
    "{line}, and {outcome}",
    "following {line}, {outcome}",
    "play continues {line}, and {outcome}",
    "{them.do[reply]} {line}, and {outcome}",
    "{them.do[answer]} {line}, and {outcome}",
    "then {line}, and {outcome}",
    "calculator|I see {line}, and {outcome}",
    "calculator|I expect {line}, and then {outcome}",
    "coach|we get {line}, and {outcome}",
    "annotator|the main line goes {line}, when {outcome}",
    "annotator|the play goes {line}, when {outcome}",
    "notebook|{line}; {outcome}",
)
_WITH = (
    "{line}, {ending}",
    "{line} follows, {ending}",
    "{them.do[reply]} {line}, {ending}",
    "it goes {line}, {ending}",
)
_SPLIT = (
    "the best reply is {first}, and after {rest}, {outcome}",
    "{them.do[have]} {first}, and after {rest}, {outcome}",
    "best is {first}; after {rest}, {outcome}",
    "the critical reply is {first}; then {rest}, and {outcome}",
    "{first} is the right answer, and after {rest}, {outcome}",
)
_EXPLAINED = (
    "{them.do[have]} {first}, which {reply}, and after {rest}, {outcome}",
    "the reply is {first}, which {reply}; after {rest}, {outcome}",
    "the answer is {first}, which {reply}, and after {rest}, {outcome}",
    "{them.do[answer]} {first}, which {reply}, and after {rest}, {outcome}",
    "{first} {reply}, and after {rest}, {outcome}",
)
_EXPLAINED_AT_ONCE = (
    "{them.do[answer]} {first}, which {reply}, and {outcome}",
    "the reply is {first}, which {reply}, and {outcome}",
    "{first} {reply}, and {outcome}",
)
_PUNISHED = (
    "it runs into {first}, which {reply}. After {rest}, {outcome}",
    "but {them.do[have]} {first}, which {reply}. After {rest}, {outcome}",
    "it allows {first}, which {reply}, and after {rest}, {outcome}",
)
_PUNISHED_AT_ONCE = (
    "it runs into {first}, which {reply}, and {outcome}",
    "but {them.do[have]} {first}, which {reply}, and {outcome}",
    "it allows {first}, which {reply}, and {outcome}",
)
_REFUTED = (
    "{m} runs into {line}, and {outcome}",
    "it runs into {line}, and {outcome}",
    "it is met by {line}, and {outcome}",
    "but {them.do[have]} {line}, and {outcome}",
    "the problem is {line}: {outcome}",
    "the snag is {line}, and {outcome}",
    "it fails to {line}: {outcome}",
    "the trouble is {line}, when {outcome}",
    "it allows {line}, and {outcome}",
)
_BAD = (Loss.MUCH, Loss.EVERYTHING)


def follow(pen: Pen, case: Case, topic: Topic, *, warned: bool) -> list[str]:
    """The line after the move and what it comes to; `warned` when what is wrong with it was just said."""
    play, candidate = topic.play, topic.candidate
    if len(play.moves) < 2:
        return []
    good_for = case.mover if candidate.is_best else (not case.mover)
    end = Outcome.of(pen, play, candidate.evaluation, good_for=good_for)
    return [sentence(_line(pen, topic, end, warned=warned))]


def _line(pen: Pen, topic: Topic, end: Outcome, *, warned: bool) -> str:
    play, candidate = topic.play, topic.candidate
    slots: dict[str, object] = {
        "m": topic.name,
        "line": numbered(play.boards[1], play.moves[1:]),
        "first": numbered(play.boards[1], play.moves[1:2]),
        "rest": numbered(play.boards[2], play.moves[2:]) if len(play.moves) > 2 else "",
        "them": pen.them,
    }
    if explained := _explained(pen, topic, end, slots, warned=warned):
        return explained
    if not end.tells and pen.chance(0.35):
        return pen.say(_WITH, ending=with_verdict(pen, candidate.evaluation, candidate.step.mover), **slots)
    if pen.chance(0.25) and (said := end.with_subject(str(slots["line"]))):
        pen.topic = str(slots["line"])
        return said
    slots["outcome"] = end.clauses(brief=pen.length.facts <= 3)
    if candidate.loss in _BAD and pen.chance(0.7):
        return pen.say(_not_again(_REFUTED, warned=warned), **slots)
    if len(play.moves) > 3 and pen.chance(0.3):
        return pen.say(_SPLIT, **slots)
    return pen.say(_AFTER, **slots)


def _not_again(options: tuple[str, ...], *, warned: bool) -> list[str]:
    """Without a second `but`, or a second time what it runs into."""
    return [option for option in options if not (warned and option.startswith(("but ", "it runs into")))]


def _explained(pen: Pen, topic: Topic, end: Outcome, slots: dict[str, object], *, warned: bool) -> str | None:
    """The line with a word on what the reply does, if it does something worth it."""
    ideas = _reply_ideas(topic)
    if not ideas or end.mates or not pen.chance(0.5 if topic.candidate.is_best else 0.7):
        return None
    pen.topic = str(slots["first"])
    reply = Step.of(topic.play.boards[1], topic.play.moves[1])
    count = 2 if pen.length.ideas > 1 and pen.chance(0.4) else 1
    slots["reply"] = finite(phrase(pen, reply, ideas[:count]))
    slots["outcome"] = end.clauses(brief=True)
    if topic.candidate.loss in (Loss.SOME, *_BAD) and pen.chance(0.7):
        options = _PUNISHED if slots["rest"] else _PUNISHED_AT_ONCE
        return pen.say(_not_again(options, warned=warned), **slots)
    return pen.say(_EXPLAINED if slots["rest"] else _EXPLAINED_AT_ONCE, **slots)


def _reply_ideas(topic: Topic) -> list[Idea]:
    """What the reply does; that it takes back needs no explanation."""
    play = topic.play
    reply = Step.of(play.boards[1], play.moves[1])
    ideas = telling(reply, ideas_of(reply), _WORTH_A_WORD)
    if topic.candidate.step.victim is not None and reply.victim == topic.candidate.step.target:
        return [idea for idea in ideas if not isinstance(idea, Captures)]
    return ideas
