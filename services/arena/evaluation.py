"""The result of an evaluation, from which the report is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.arena.evaluate import Policy, Questions
from services.arena.measures import Answers, Part
from services.arena.positions import Chosen


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The questions, the answers of both policies and the metrics. `seconds` is the time that it took."""

    chosen: Chosen
    questions: Questions
    policies: tuple[Policy, Policy]
    before: Sequence[Answers]
    after: Sequence[Answers]
    parts: Mapping[str, Part]
    seconds: float
