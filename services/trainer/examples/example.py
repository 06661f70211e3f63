"""Tokenised examples, and their order: shuffled with a seed in every epoch, in batches of similar length."""

import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

_CHUNK = 2048
"""Number of examples that are made together and sorted by length, so that a batch has little padding."""


@dataclass(frozen=True, slots=True)
class SoftTargets:
    """Distributions over token ids, as parallel arrays: target n is token `tokens[n]` with `weights[n]`.

    `indices[n]` is the index in the answer of the token that it stands for. Each token of the answer has
    targets, in order; one without a distribution is its own target, with weight 1.
    """

    indices: "array[int]"
    tokens: "array[int]"
    weights: "array[float]"

    @classmethod
    def of(cls, answer: Sequence[int], distributions: Mapping[int, Mapping[int, float]]) -> "SoftTargets":
        """Builds the targets of an answer from distributions by the index of a token in it."""
        targets = [
            (index, target, weight)
            for index, token in enumerate(answer)
            for target, weight in distributions.get(index, {token: 1.0}).items()
        ]
        indices, tokens, weights = zip(*targets, strict=True) if targets else ((), (), ())
        return cls(array("i", indices), array("i", tokens), array("f", weights))


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a prompt and of its answers: one to imitate, or the chosen and the rejected.

    `gap` is how much better the chosen answer is, in win probability. `soft_targets` replace the tokens of
    the only answer as targets. Token ids may be `array("i")`: a list takes ten times the memory.
    """

    prompt_ids: Sequence[int]
    answers: tuple[Sequence[int], ...]
    gap: float = 0.0
    soft_targets: SoftTargets | None = None

    @property
    def length(self) -> int:
        """The number of tokens of the example in a row."""
        return len(self.prompt_ids) + self.answer_tokens

    @property
    def answer_tokens(self) -> int:
        """The number of tokens that carry loss: those of the answers, never the prompt's."""
        return sum(len(answer) for answer in self.answers)


class ExampleSource(Protocol):
    """Numbered examples, made on demand."""

    def __len__(self) -> int: ...

    def examples(self, numbers: Sequence[int]) -> list[Example]:
        """Returns the examples with these numbers, in the same order."""


def shuffled_batches(
    source: ExampleSource, *, batch_size: int, seed: int, skip: int = 0
) -> Iterator[list[Example]]:
    """Yields batches of examples of similar length, without end.

    Examples that do not fill a batch at the end of an epoch are left out of that epoch; the next one is
    shuffled anew. `skip` skips that many batches without making them, to resume.
    """
    chunk_size = max(batch_size, _CHUNK // batch_size * batch_size)
    for epoch in count():
        rng = random.Random(f"{seed}:{epoch}")
        order = list(range(len(source)))
        rng.shuffle(order)
        usable = len(order) - len(order) % batch_size or len(order)
        for start in range(0, usable, chunk_size):
            chunk = order[start : min(start + chunk_size, usable)]
            places = [range(i, min(i + batch_size, len(chunk))) for i in range(0, len(chunk), batch_size)]
            rng.shuffle(places)
            if skip >= len(places):
                skip -= len(places)
                continue
            examples = source.examples(chunk)
            examples.sort(key=lambda example: example.length)
            for place in places[skip:]:
                yield [examples[i] for i in place]
            skip = 0
