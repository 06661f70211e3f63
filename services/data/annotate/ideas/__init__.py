"""What a move does, as typed records: found by comparing the boards before and after it."""

import chess

from services.data.annotate.exchange import VALUES
from services.data.annotate.ideas import defence, drawbacks, lines, pressure, shape, strikes
from services.data.annotate.ideas.idea import Idea
from services.data.annotate.step import Step

__all__ = ["Idea", "ideas_of"]

_DETECTORS = (
    strikes.strikes,
    pressure.pressure,
    lines.lines,
    defence.defence,
    shape.shape,
    drawbacks.drawbacks,
)


def ideas_of(step: Step, *, threat: chess.Move | None = None) -> list[Idea]:
    """Every idea of a move, the most important first, drawbacks last.

    `threat` is what the other side would have played if the mover had passed.
    """
    found = [idea for detect in _DETECTORS for idea in detect(step)]
    if threat is not None:
        found += defence.stopped(step, threat)
    return sorted(found, key=lambda idea: -_importance(idea))


def _importance(idea: Idea) -> float:
    """The weight of an idea; a capture matters as much as what it takes."""
    return idea.weight + (VALUES[idea.kind] / 2 if isinstance(idea, strikes.Captures) else 0.0)
