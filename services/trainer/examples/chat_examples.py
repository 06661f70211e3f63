"""Examples for imitation from a file of chats: all that fit, tokenised on demand."""

import logging
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from rookery.errors import InvalidInput
from services.trainer.examples.chat_files import Chats
from services.trainer.examples.conversations import tokenize
from services.trainer.fitting.layout import Example

logger = logging.getLogger(__name__)

_TOKENISED_AT_ONCE = 512

_LINE_EVERY = 100_000
"""Chats between log lines while a large file is measured."""


class ChatExamples:
    """Examples of conversations, as a `Source`. Chats longer than `max_length` are left out, with a warning.

    Every chat, or each of the first `limit`, is tokenised once at the start to measure it. So any error in
    the file is found before training.
    """

    def __init__(self, chats: Chats, tokenizer: Any, *, max_length: int, limit: int | None = None) -> None:
        self._chats = chats
        self._tokenizer = tokenizer
        looked_at = min(len(chats), limit or len(chats))
        self._numbers = array("Q", self._fitting(looked_at, max_length))
        self.left_out = looked_at - len(self._numbers)
        counts = f"{looked_at} examples in {chats.path}, of which {self.left_out} do not fit"
        if not self._numbers:
            raise InvalidInput(f"{counts} into --max-length {max_length}: nothing is left to learn")
        if self.left_out:
            logger.warning("%s into --max-length %d and are left out", counts, max_length)

    def __len__(self) -> int:
        return len(self._numbers)

    def examples(self, numbers: Sequence[int]) -> list[Example]:
        """Returns the examples with these numbers (see `services.trainer.fitting.order.Source`)."""
        return self._made([self._numbers[number] for number in numbers])

    def _fitting(self, count: int, max_length: int) -> Iterator[int]:
        """Yields the numbers of the chats that have an answer and at most `max_length` tokens in all."""
        places = iter(range(count))
        while here := list(islice(places, _TOKENISED_AT_ONCE)):
            for place, example in zip(here, self._made(here), strict=True):
                if example.answer_tokens and example.length <= max_length:
                    yield place
                if (place + 1) % _LINE_EVERY == 0:
                    logger.info("measured %d of %d examples in %s", place + 1, count, self._chats.path)

    def _made(self, places: Sequence[int]) -> list[Example]:
        return tokenize([self._chats[place] for place in places], self._tokenizer)
