"""Soft targets of an answer: texts that could stand in its place, with weights."""

import math
from dataclasses import dataclass
from typing import Any

from rookery.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Texts that could replace the characters `start` to `end` of an answer, and their probabilities. The
    answer's own text is one of them."""

    start: int
    end: int
    texts: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, value: Any) -> "Alternatives":
        """Reads an entry of the column `alternatives`. The weights are divided by their sum. Raises
        `InvalidInput` if the entry is malformed."""
        quoted = str(value)[:120]
        try:
            start, end = int(value["start"]), int(value["end"])
            texts, weights = tuple(map(str, value["texts"])), tuple(map(float, value["weights"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"alternatives are start, end, texts and weights, not {quoted!r}") from error
        if not len(texts) == len(set(texts)) == len(weights):
            raise InvalidInput(f"alternatives need different texts and a weight for each: {quoted!r}")
        total = sum(weights)
        if not 0 < total < math.inf or min(weights) < 0:
            raise InvalidInput(f"the weights of alternatives are not probabilities: {quoted!r}")
        return cls(start, end, texts, tuple(weight / total for weight in weights))
