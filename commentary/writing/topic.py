"""Which effects of a move are worth telling, and the candidate that is spoken of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from commentary.concept import Finding
from commentary.step import Step
from commentary.writing.case import Candidate
from commentary.writing.play import Play
from commentary.writing.writer import Writer

STRONG = 1.5
"""The weight from which on an effect needs no excuse to be told."""

_AIMED = ("attacks", "forks", "piles up", "adds an attacker", "targets a weak pawn", "captures")
_FAINT = ("covers squares", "centralises", "denies a square", "takes a file")
_CHECKS = ("checks", "discovers check", "double check")
STATES = (*_CHECKS, "mates", "stalemates", "promotes", "leaves check")
"""Deeds that are no purpose: a move is check, it does not aim to be."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A candidate under discussion: `name` is how it is written, `play` its line as far as it is told."""

    candidate: Candidate
    name: str
    play: Play

    @classmethod
    def of(cls, writer: Writer, candidate: Candidate) -> Self:
        """Names a candidate and cuts its line to the length of the text."""
        plies = writer.length.plies + (1 if candidate.is_best else 0)
        return cls(
            candidate, writer.name(candidate.move), candidate.full.rest(least=min(2, plies), most=plies)
        )


def selected(candidate: Candidate, count: int) -> list[Finding]:
    """The effects worth telling, the weightiest first; what follows from another is left out."""
    end = next(
        (effect for effect in candidate.effects if effect.concept.name in ("mates", "stalemates")),
        None,
    )
    if end is not None:
        return [
            *(effect for effect in candidate.effects if effect.concept.name == "captures"),
            end,
        ]
    return _pruned([effect for effect in candidate.effects if effect.weight > 0], candidate.step)[:count]


def telling(step: Step, effects: Sequence[Finding], least: float) -> list[Finding]:
    """The effects of a reply from a weight on; its name says already that it is check."""
    seen = ("leaves check", "checks")
    return [d for d in _pruned(effects, step) if d.weight >= least and d.concept.name not in seen]


def _pruned(effects: Sequence[Finding], step: Step) -> list[Finding]:
    """Without what another effect says already."""
    kept: list[Finding] = []
    for effect in effects:
        if not any(_covers(other, effect, step) for other in kept):
            kept.append(effect)
    return [effect for effect in kept if effect.weight >= STRONG] or kept


def _covers(told: Finding, effect: Finding, step: Step) -> bool:
    """Whether an effect has been told with another."""
    name, other = effect.concept.name, told.concept.name
    if name == "centralises" and other in ("develops", "captures"):
        return True
    if name == "checks":
        return other == "forks" and step.after.king(not step.mover) in told.values["targets"]
    if name in ("stops a threat", "avoids a check"):
        return other == "parries mate"
    if name in _AIMED and other in _AIMED and name != "captures":
        return bool(set(effect.squares) & set(told.squares))
    if name == "activates the moved piece":
        return True  # a reason only where there is no better one
    return other == "castles" and name in (*_FAINT, "frees a piece")
