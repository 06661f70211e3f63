"""The judged answers of a player. Their form in the store is that of `dataclasses.asdict`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rookery.candidates import Candidate
from rookery.trace import EngineStamp, Evaluation, Move, Outcome, Position, Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """What a player answered, and how it was judged.

    Attributes:
        text: what the player wrote; for an engine, its move in a box.
        tokens: the number of tokens of a model's answer, 0 for others.
        verdict: the verdict on the move, or on the whole line for the task `A`.
        line: the verdict on a `P:` line as a whole; None for other answers.
        candidates: the moves that the text names, in order, with repetitions.
        wins: the win probability after each distinct legal candidate. Empty unless it was asked for.
    """

    text: str
    tokens: int
    verdict: Verdict
    line: Verdict | None = None
    candidates: tuple[Candidate, ...] = ()
    wins: Mapping[str, float] = field(default_factory=dict)

    @property
    def legal(self) -> bool:
        """Whether the answer is a legal move."""
        return self.verdict.outcome is Outcome.LEGAL


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one player to one position: a greedy one and several sampled ones.

    `fen` is the board on which they are read. It is mirrored if the player's prompt style mirrors it.
    """

    position: Position
    fen: str
    greedy: Answer
    samples: tuple[Answer, ...]

    @property
    def every(self) -> tuple[Answer, ...]:
        """The greedy answer, then the sampled ones."""
        return (self.greedy, *self.samples)


def answer_from_json(value: Mapping[str, Any]) -> Answer:
    """The answer that was written with `dataclasses.asdict`."""
    line = value["line"]
    return Answer(
        text=value["text"],
        tokens=value["tokens"],
        verdict=_verdict(value["verdict"]),
        line=None if line is None else _verdict(line),
        candidates=tuple(Candidate(**candidate) for candidate in value["candidates"]),
        wins=value["wins"],
    )


def _verdict(value: Mapping[str, Any]) -> Verdict:
    kinds = {
        "move": Move,
        "best": Move,
        "eval_before": Evaluation,
        "eval_after": Evaluation,
        "engine": EngineStamp,
    }
    parts = {name: kind(**value[name]) for name, kind in kinds.items() if value[name] is not None}
    return Verdict(**{**value, **parts, "outcome": Outcome(value["outcome"])})
