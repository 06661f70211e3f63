"""Soft targets: alternative texts for a part of an answer, with probabilities, as tokens."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rookery.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Texts that could replace the characters `start` to `end` of an answer, and their probabilities.

    The answer's own text is one of them.
    """

    start: int
    end: int
    texts: Sequence[str]
    weights: Sequence[float]

    @classmethod
    def of(cls, value: Any) -> "Alternatives":
        """Reads an entry of the column `alternatives`. The weights are divided by their sum.

        Raises:
            InvalidInput: the entry is malformed.
        """
        said = str(value)[:120]
        try:
            start, end = int(value["start"]), int(value["end"])
            texts, weights = list(map(str, value["texts"])), list(map(float, value["weights"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"alternatives are start, end, texts and weights, not {said!r}") from error
        if not len(texts) == len(set(texts)) == len(weights):
            raise InvalidInput(f"alternatives need different texts and a weight for each: {said!r}")
        total = sum(weights)
        if not 0 < total < math.inf or min(weights) < 0:
            raise InvalidInput(f"the weights of alternatives are no probabilities: {said!r}")
        return cls(start, end, texts, [weight / total for weight in weights])


def soft_targets(
    spans: Sequence[Alternatives],
    content: str,
    *,
    within: str,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    ids_of: Callable[[str], list[int]],
) -> dict[int, dict[int, float]]:
    """Returns distributions over token ids, by the index of the token in the answer.

    Args:
        spans: Alternatives of parts of `content`.
        content: The answer.
        within: The answer as the chat template renders it.
        ids: Token ids of `within`.
        offsets: The first character of each token and the one after its last.
        ids_of: Returns the token ids of a text.

    Raises:
        InvalidInput: a span does not consist of whole tokens, its text is not among the alternatives, or the
            tokens of one alternative begin another.
    """
    shift = within.find(content)
    targets: dict[int, dict[int, float]] = {}
    for span in spans:
        text = content[span.start : span.end]
        places = [p for p, (a, b) in enumerate(offsets) if span.start + shift <= a < b <= span.end + shift]
        path = [ids[place] for place in places]
        if shift < 0 or text not in span.texts or path != ids_of(text):
            raise InvalidInput(
                f"alternatives of {text!r}, characters {span.start} to {span.end} of {content[:120]!r}: that "
                "text must be one of them and consist of whole tokens"
            )
        said = {tuple(ids_of(one)): weight for one, weight in zip(span.texts, span.weights, strict=True)}
        beginnings = any(one == other[: len(one)] for one, other in pairwise(sorted(said)))
        if beginnings or len(said) < len(span.texts):
            raise InvalidInput(f"alternatives of {text!r}: the tokens of one begin another in {span.texts}")
        for depth, place in enumerate(places):
            targets[place] = _next(said, path[:depth]) or {path[depth]: 1.0}
    return targets


def _next(said: Mapping[tuple[int, ...], float], path: Sequence[int]) -> dict[int, float]:
    """Returns the probability of each token after `path`; empty if no text with a weight begins with it."""
    found: dict[int, float] = {}
    for one, weight in said.items():
        if weight and one[: len(path)] == tuple(path):
            found[one[len(path)]] = found.get(one[len(path)], 0.0) + weight
    total = sum(found.values())
    return {token: weight / total for token, weight in found.items()}
