"""Two policies on the same positions: all that a report of them is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.arena.evaluate import Policy, Questions
from services.arena.measures import Answers, Part
from services.arena.positions import Chosen


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answers of both, and what they were asked."""

    chosen: Chosen
    questions: Questions
    policies: tuple[Policy, Policy]
    before: Sequence[Answers]
    after: Sequence[Answers]
    parts: Mapping[str, Part]
    seconds: float
