"""The order of the examples: shuffled with a seed in every epoch, in batches of similar length."""

import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Protocol

from services.trainer.fitting.layout import Example

_CHUNK = 2048
"""Number of examples that are made together and sorted by length, so that a batch has little padding."""


class Source(Protocol):
    """Numbered examples, made on demand."""

    def __len__(self) -> int: ...

    def examples(self, numbers: Sequence[int]) -> list[Example]:
        """Returns the examples with these numbers, in the same order."""


def batches(source: Source, *, batch_size: int, seed: int, skip: int = 0) -> Iterator[list[Example]]:
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
