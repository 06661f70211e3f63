"""Which positions are fed again: those whose groups had different rewards, so that they teach something."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from rookery.trace import Draw

FORGOTTEN = 8
"""After this many half-lives, a position is never repeated again."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Positions are repeated with probability `share`, in proportion to their weight.

    The weight is the standard deviation of the rewards of the position's last group. It halves with every
    `half_life` new positions that were fed after the position itself was new.
    """

    share: float
    half_life: int

    def weights(self, deviations: Mapping[int, float], *, fresh: int) -> dict[int, float]:
        """The weights by number, if `fresh` new positions have been fed; without those to be forgotten.

        >>> Repeats(0.5, half_life=10).weights({0: 0.2, 75: 0.2, 85: 0.1}, fresh=85 + 10)
        {75: 0.05, 85: 0.05}
        """
        ages = {number: (fresh - number) / self.half_life for number in deviations}
        return {number: deviations[number] * 0.5**age for number, age in ages.items() if age < FORGOTTEN}

    def draw(self, weights: Mapping[int, float], *, fresh: int, rng: random.Random) -> Draw:
        """The next position: one of `weights`, or the new one with number `fresh`."""
        total = sum(weights.values())
        share = self.share if total else 0.0
        if rng.random() >= share:
            return Draw(fresh, 1.0 - share, repeated=False)
        [number] = rng.choices(list(weights), list(weights.values()))
        return Draw(number, share * weights[number] / total, repeated=True)
