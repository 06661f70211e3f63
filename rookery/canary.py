"""The canary: what a version answers to one fixed text, by which a server shows that it applies the version.

The trainer writes `canary.json` into a version's folder: the log-probabilities, under the version and under
the base, of the likeliest tokens of both after some beginnings of the text. A server asks its engine for the
same numbers. No two engines agree exactly, and a GPU's answers also depend on the batch. So the server
measures its own noise, on the base model, and compares within it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

from rookery.errors import InvalidInput, validation_message

CANARY_FILE = "canary.json"
CANARY_TEXT = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"
MAX_TOKENS, BEGINNINGS, LIKELIEST = 256, 8, 8
"""The longest text, how many beginnings of it are asked, and how many tokens are compared after each."""

RANKS = 64
"""How many of the likeliest tokens a server looks at: one that was likely may have become unlikely."""

MARGIN = 4.0
"""How many times the noise a difference must be to count. The noise is a root mean square over up to 64
numbers, and a difference is of two versions, so that of a sound version stays below twice the noise."""

_MAX_BYTES = 1 << 18

Rows: TypeAlias = Sequence[Mapping[int, float]]
"""For each beginning, the engine's likeliest next tokens with their log-probabilities."""

_Ids: TypeAlias = Annotated[list[NonNegativeInt], Field(min_length=1, max_length=MAX_TOKENS)]
_Logprobs: TypeAlias = list[Annotated[list[FiniteFloat], Field(max_length=MAX_TOKENS)]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Differences of log-probabilities, root mean squares in nats.

    `noise` is between the engine's base and the trainer's, or between answers of the engine's base;
    `shift` what the version changes by the trainer's account; `distance` from that to the engine's change.
    `applied` is the engine's change along the trainer's: 1 for the same, 0 for an answer as the base's, and
    None for a version that changes nothing.
    """

    noise: float
    shift: float
    distance: float
    applied: float | None

    @property
    def fault(self) -> str | None:
        """Why the engine does not answer as the version does, or None if it does as far as one can tell."""
        figures = (
            f"noise {self.noise:.2g}, expected change {self.shift:.2g}, "
            f"distance from that {self.distance:.2g} nats"
        )
        if self.applied is not None and self.applied < 0.5 and self.shift > MARGIN * self.noise:
            return f"answers the canary more like the base model than like itself ({figures})"
        if self.distance > MARGIN * self.noise + self.shift / 4:
            return f"answers the canary unlike the trainer's copy of it ({figures})"
        return None


class Canary(BaseModel):
    """The content of `canary.json`. `token_ids[:length]` for each of `lengths` are the beginnings; `tokens`,
    and their `logprobs` and `base` log-probabilities, are of the next token after each."""

    model_config = ConfigDict(frozen=True)

    token_ids: _Ids
    lengths: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=BEGINNINGS)]
    tokens: Annotated[list[_Ids], Field(max_length=BEGINNINGS)]
    logprobs: Annotated[_Logprobs, Field(max_length=BEGINNINGS)]
    base: Annotated[_Logprobs, Field(max_length=BEGINNINGS)]

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        shapes = {tuple(map(len, rows)) for rows in (self.tokens, self.logprobs, self.base)}
        if len(shapes) > 1 or len(self.tokens) != len(self.lengths):
            raise ValueError("lengths, tokens, logprobs and base are of different shapes")
        if max(self.lengths) > len(self.token_ids):
            raise ValueError(f"length {max(self.lengths)} of {len(self.token_ids)} token_ids")
        return self

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The canary of a version's folder, or None without one. Raises `InvalidInput` if it is damaged."""
        path = folder / CANARY_FILE
        if not path.is_file():
            return None
        if path.resolve().parent != folder.resolve() or path.stat().st_size > _MAX_BYTES:
            raise InvalidInput(f"{path} is a link, or larger than {_MAX_BYTES} bytes")
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise InvalidInput(f"{path}: {validation_message(error.errors()[:1], root='file')}") from error

    @property
    def beginnings(self) -> list[list[int]]:
        """The tokens that the engine is asked to continue."""
        return [self.token_ids[:length] for length in self.lengths]

    def compare(self, answer: Rows, bases: Sequence[Rows], *, precision: float) -> Agreement:
        """Compares the engine's answer under the version, and several under the base, with the trainer's.

        A token that is not among those of an answer counts as the least likely one that is, on both sides.
        `precision`, the machine epsilon of the engine's numbers, is the least noise.
        """
        base, *others = ([*self._values(rows, self.base)] for rows in bases)
        change = [
            (ours - ours_base, theirs - theirs_base)
            for (ours, theirs), (ours_base, theirs_base) in zip(
                self._values(answer, self.logprobs), base, strict=True
            )
        ]
        # Two answers differ by the square root of 2 as much as one does from their mean.
        repeats = [_rms((a[0] - b[0]) / 2**0.5 for a, b in zip(base, other, strict=True)) for other in others]
        power = sum(theirs**2 for _, theirs in change)
        return Agreement(
            noise=max(precision, _rms(ours - theirs for ours, theirs in base), *repeats),
            shift=_rms(
                value - before
                for row, base_row in zip(self.logprobs, self.base, strict=True)
                for value, before in zip(row, base_row, strict=True)
            ),
            distance=_rms(ours - theirs for ours, theirs in change),
            applied=sum(ours * theirs for ours, theirs in change) / power if power else None,
        )

    def _values(self, rows: Rows, expected: Sequence[Sequence[float]]) -> Iterator[tuple[float, float]]:
        """The engine's and the trainer's log-probability of each token."""
        for row, ids, values in zip(rows, self.tokens, expected, strict=True):
            least = min(row.values())
            yield from ((row.get(i, least), max(value, least)) for i, value in zip(ids, values, strict=True))


def _rms(values: Iterator[float]) -> float:
    squares = [value**2 for value in values]
    return math.sqrt(sum(squares) / len(squares))
