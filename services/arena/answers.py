"""The judged answers of a player. Their form in the store is that of `dataclasses.asdict`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commentary import Reading, read
from rookery.answers import text_to_read
from rookery.candidates import Candidate
from rookery.rookworld import read_policy_answer
from rookery.trace import (
    Claim,
    EngineStamp,
    Evaluation,
    Move,
    Outcome,
    Position,
    ProcessReward,
    Sentence,
    Verdict,
)

READ_CHARS = 10_000
"""Characters of an answer in which claims are looked for, so that a long text does not take long."""


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


def read_claims(answer: Answer, fen: str) -> Reading | None:
    """What the text before the box claims about the board `fen`, if there is text.

    None also for a `P:` line, which has no sentences, and in Chess960, which the reader does not know.
    """
    move = answer.verdict.move
    text = text_to_read(answer.text, move.uci if move else "", chars=READ_CHARS)
    if not text.strip() or read_policy_answer(answer.text):
        return None
    try:
        return read(fen, text)
    except ValueError:
        return None


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
    sentences = tuple(
        Sentence(**{**sentence, "claims": tuple(Claim(**claim) for claim in sentence["claims"])})
        for sentence in value.get("sentences", ())  # an older file has none
    )
    rewards = tuple(ProcessReward(**reward) for reward in value.get("process_rewards", ()))
    known = {"outcome": Outcome(value["outcome"]), "sentences": sentences, "process_rewards": rewards}
    return Verdict(**{**value, **parts, **known})
