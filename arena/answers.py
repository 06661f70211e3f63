"""The judged answers of a player. Their form in the store is that of `dataclasses.asdict`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from commentary import TextReading, read
from rookery.answers import text_to_read
from rookery.candidates import Candidate
from rookery.errors import InvalidInput, validation_message
from rookery.rookworld import read_policy_answer
from rookery.trace import Position, Verdict

READ_CHARS = 10_000
"""Characters of an answer in which claims are looked for, so that a long text does not take long."""


@dataclass(frozen=True, slots=True)
class PlayerAnswer:
    """What a player answered, and how it was judged.

    Attributes:
        text: what the player wrote; for an engine, its move in a box.
        tokens: the number of tokens of a model's answer, 0 for others.
        verdict: the verdict on the move, or on the whole line for the task `A`.
        line: the verdict on a `P:` line as a whole; None for other answers.
        candidates: the moves that the text names, in order, with repetitions.
        wins: the win probability after each distinct legal candidate. Empty unless it was asked for.
        calls: calls of tools before the answer, of a player that may call some.
    """

    text: str
    tokens: int
    verdict: Verdict
    line: Verdict | None = None
    candidates: tuple[Candidate, ...] = ()
    wins: Mapping[str, float] = field(default_factory=dict)
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one player to one position: a greedy one and several sampled ones. `fen` is the board on
    which they are read. It is mirrored if the player's prompt style mirrors it."""

    position: Position
    fen: str
    greedy: PlayerAnswer
    samples: tuple[PlayerAnswer, ...]

    @property
    def every(self) -> tuple[PlayerAnswer, ...]:
        return (self.greedy, *self.samples)


def read_claims(answer: PlayerAnswer, fen: str) -> TextReading | None:
    """What the text before the box claims about the board `fen`, if there is text. None also for a `P:` line,
    which has no sentences, and in Chess960, which the reader does not know."""
    move = answer.verdict.move
    text = text_to_read(answer.text, move.uci if move else "", chars=READ_CHARS)
    if not text.strip() or read_policy_answer(answer.text):
        return None
    try:
        return read(fen, text)
    except ValueError:
        return None


_ANSWER = TypeAdapter(PlayerAnswer)


def answer_from_json(value: Any) -> PlayerAnswer:
    """The answer that was written with `dataclasses.asdict`. Older ones lack fields that have defaults.
    Raises `InvalidInput` if `value` is not an answer."""
    try:
        return _ANSWER.validate_python(value)
    except ValidationError as error:
        message = validation_message(error.errors(include_url=False)[:1], root="answer")
        raise InvalidInput(f"not an answer: {message}") from error
