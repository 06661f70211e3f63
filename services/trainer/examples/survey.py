"""What the examples of a file are like: their lengths, and the notation and lengths of the answers."""

import math
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rookery.answers import extract
from rookery.errors import InvalidInput

MAX_LEFT_OUT = 0.1
"""Most of the examples that may be longer than --max-length."""

_UCI = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")


@dataclass(slots=True)
class Survey:
    """Counts examples, of which those longer than `max_length` tokens are not learned."""

    max_length: int
    lengths: "array[int]" = field(default_factory=lambda: array("L"))
    _answer_lengths: "array[int]" = field(default_factory=lambda: array("L"))
    _boxes: Counter[Literal["san", "uci"]] = field(default_factory=Counter)

    def add(self, length: int, *, answer: str, answer_tokens: int) -> bool:
        """Counts an example of `length` tokens. Returns whether it is learned: it fits and has an answer."""
        self.lengths.append(length)
        if not answer_tokens or length > self.max_length:
            return False
        self._answer_lengths.append(answer_tokens)
        if move := extract(answer).text:
            self._boxes["uci" if _UCI.fullmatch(move) else "san"] += 1
        return True

    @property
    def left_out(self) -> int:
        return len(self.lengths) - len(self._answer_lengths)

    @property
    def box(self) -> Literal["san", "uci"] | None:
        """The notation of most moves in a box of a learned answer; None if there are none."""
        return next((notation for notation, _ in self._boxes.most_common(1)), None)

    @property
    def answer_tokens(self) -> int:
        """99% of the learned answers have at most this number of tokens."""
        return quantile(self._answer_lengths, 0.99)

    def check(self, path: Path) -> None:
        """Checks that most examples of the file fit. Raises `InvalidInput` if more than `MAX_LEFT_OUT` of
        them do not. The message has the lengths."""
        longer = sum(length > self.max_length for length in self.lengths)
        if longer > MAX_LEFT_OUT * len(self.lengths):
            half, most, nearly_all = (quantile(self.lengths, share) for share in (0.5, 0.9, 0.99))
            share = f"{longer} of {len(self.lengths)} examples in {path} ({longer / len(self.lengths):.0%})"
            raise InvalidInput(
                f"{share} do not fit into --max-length {self.max_length}. Half of them have at most {half} "
                f"tokens, 90% at most {most}, 99% at most {nearly_all}, the longest {max(self.lengths)}: "
                f"--max-length {nearly_all} keeps 99%"
            )


def quantile(values: Sequence[int], share: float) -> int:
    """Returns the smallest of `values` that at least this share of them do not exceed.

    >>> [quantile([5, 1, 2, 4, 3], share) for share in (0.5, 0.8, 0.99)]
    [3, 4, 5]
    """
    return sorted(values)[math.ceil(share * len(values)) - 1]
