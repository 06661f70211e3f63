"""What a move does, as one verb phrase: which ideas are worth telling, and in which order."""

from __future__ import annotations

from services.data.annotate.case import Candidate
from services.data.annotate.ideas import Idea
from services.data.annotate.ideas.defence import Evades, Parries, StopsThreat
from services.data.annotate.ideas.pressure import Attacks, Forks, Outnumbers, PilesUp, TargetsPawn
from services.data.annotate.ideas.shape import Castles, Centralises, Covers, Denies, Develops
from services.data.annotate.ideas.strikes import Captures, Checks, Mates, Promotes, Stalemates
from services.data.annotate.step import Step
from services.data.annotate.voice.pen import Pen, finite, infinitive, participle
from services.data.annotate.voice.wordings import IDEAS

_TRIES = 8
_STRONG = 1.5
"""The weight from which on an idea needs no excuse to be told."""

_AIMED = (Attacks, Forks, PilesUp, Outnumbers, TargetsPawn)
_FAINT = (Covers, Centralises, Denies)

_SEEN = (Evades, Checks)

STATES = (Checks, Mates, Stalemates, Promotes, Evades)
"""Ideas that are no purpose: a move is check, it does not aim to be."""


def selected(candidate: Candidate, count: int) -> list[Idea]:
    """The ideas worth telling, the weightiest first; what follows from another is left out."""
    end = next((idea for idea in candidate.ideas if isinstance(idea, Mates | Stalemates)), None)
    if end is not None:
        return [*(idea for idea in candidate.ideas if isinstance(idea, Captures)), end]
    return _pruned([idea for idea in candidate.ideas if idea.weight > 0], candidate.step)[:count]


def telling(step: Step, ideas: list[Idea], least: float) -> list[Idea]:
    """The ideas of a reply from a weight on; its name says already that it is check."""
    return [idea for idea in _pruned(ideas, step) if idea.weight >= least and not isinstance(idea, _SEEN)]


def _pruned(ideas: list[Idea], step: Step) -> list[Idea]:
    """Without what another idea says already."""
    kept: list[Idea] = []
    for idea in ideas:
        if not any(_covers(other, idea, step) for other in kept):
            kept.append(idea)
    strong = [idea for idea in kept if idea.weight >= _STRONG]
    return strong or kept


def _covers(told: Idea, idea: Idea, step: Step) -> bool:
    """Whether an idea has been told with another."""
    if isinstance(idea, Centralises) and isinstance(told, Develops | Captures):
        return True
    if isinstance(idea, Checks):
        return isinstance(told, Forks) and step.after.king(not step.mover) in told.targets
    if isinstance(idea, StopsThreat):
        return isinstance(told, Parries) or (
            isinstance(told, Captures) and idea.threat.from_square == told.victim
        )
    if isinstance(told, _AIMED) and isinstance(idea, _AIMED):
        return bool(set(idea.squares) & set(told.squares))
    return isinstance(told, Castles) and isinstance(idea, _FAINT)


def phrase(pen: Pen, step: Step, ideas: list[Idea]) -> str:
    """Several ideas as one verb phrase with marked verbs."""
    pen.moved(step.after, step.target)
    parts = [_part(pen, step, idea, last=idea is ideas[-1]) for idea in ideas]
    if len(parts) > 1 and any(" and ~" in part for part in parts):
        return f"{', '.join(parts[:-1])}, and {parts[-1]}"
    return pen.join(parts)


def _part(pen: Pen, step: Step, idea: Idea, *, last: bool) -> str:
    """One idea in words. A part with a clause of its own stands last, where nothing seems to continue it."""
    for _ in range(_TRIES):
        before = pen.mentions()
        part = IDEAS[type(idea)](pen, step, idea)
        if last or "," not in part:
            break
        pen.recall(before)
    return part


def verbs(pen: Pen, step: Step, ideas: list[Idea]) -> dict[str, str]:
    """The forms of a verb phrase, by the names that templates use."""
    marked = phrase(pen, step, ideas)
    return {"does": finite(marked), "do": infinitive(marked), "doing": participle(marked)}
