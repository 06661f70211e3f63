"""The Elo difference of two players from pairs of games, each pair from one opening with both colours.

The two games of a pair are not independent, because an opening that favours White gives one win to each side.
Pairs are. So the statistic is the pentanomial: how many pairs scored 0, 1/4, 1/2, 3/4 and 1 for the player.
The formulas are fastchess's (app/src/matchmaking/elo/elo_pentanomial.cpp).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from rookery.intervals import Z95

SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""A pair's possible scores: LL, LD, WL or DD, WD, WW."""

ELO = 400 / math.log(10)
"""One unit of the logistic curve in Elo: E = 1 / (1 + exp(-d / ELO))."""


@dataclass(frozen=True, slots=True)
class Elo:
    """A difference in Elo and its 95% interval. `value` is None where the results allow no number: at a score
    of 0% or 100%. Then one of `low` and `high` is a one-sided 95% bound. A bound that is None is infinite."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Pentanomial:
    """How many pairs had each score of `SCORES`.

    >>> match = Pentanomial.of([0.5, 0.75, 1.0, 0.5])
    >>> match.counts, match.score
    ((0, 0, 2, 1, 1), 0.6875)
    """

    counts: tuple[int, int, int, int, int]

    @classmethod
    def of(cls, scores: Iterable[float]) -> "Pentanomial":
        counts = [0, 0, 0, 0, 0]
        for score in scores:
            counts[SCORES.index(score)] += 1
        return cls((counts[0], counts[1], counts[2], counts[3], counts[4]))

    @property
    def pairs(self) -> int:
        return sum(self.counts)

    @property
    def score(self) -> float:
        """The mean score of a game, 0 to 1."""
        return sum(n * x for n, x in zip(self.counts, SCORES, strict=True)) / self.pairs

    @property
    def variance(self) -> float:
        return self._moment(2)

    def _moment(self, k: int) -> float:
        mean = self.score
        return sum(n * (x - mean) ** k for n, x in zip(self.counts, SCORES, strict=True)) / self.pairs

    @property
    def elo(self) -> Elo:
        """The logistic Elo difference.

        Without variance, the normal approximation would claim certainty. Then, with 95% confidence, at least
        a share of p = 0.05^(1/pairs) of all pairs has the score x that all of these have, and the true score
        is between p x and p x + (1 - p).
        """
        if not self.pairs:
            return Elo(None, None, None)
        mean, variance = self.score, self.variance
        if variance == 0:
            share = 0.05 ** (1 / self.pairs)
            return Elo(_elo(mean), _elo(share * mean), _elo(share * mean + 1 - share))
        margin = Z95 * math.sqrt(variance / self.pairs)
        return Elo(_elo(mean), _elo(mean - margin), _elo(mean + margin))

    @property
    def normalised_elo(self) -> Elo:
        """The normalised Elo difference, which says how many games it takes to tell the players apart.

        But for its unit, the value is a Sharpe ratio, and the interval is that of one: the standard deviation
        is estimated, too (E. Mertens, "Comments on variance of the IID estimator in Lo (2002)", 2002).
        fastchess takes it for known, and its interval covers too seldom when one side is much stronger.
        """
        if not self.pairs or self.variance == 0:
            return Elo(None, None, None)
        sigma = math.sqrt(self.variance)
        third, fourth = (self._moment(k) / sigma**k for k in (3, 4))
        t = (self.score - 0.5) / sigma
        error = math.sqrt((1 - third * t + (fourth - 1) / 4 * t**2) / self.pairs)
        unit = math.sqrt(2) * ELO
        return Elo(unit * t, unit * (t - Z95 * error), unit * (t + Z95 * error))

    @property
    def superiority(self) -> float:
        """The likelihood that the player is the stronger one; a sign test where no pair differs."""
        if not self.pairs:
            return 0.5
        lead, variance = self.score - 0.5, self.variance
        if variance == 0:
            tail = 0.5**self.pairs
            return 0.5 if lead == 0 else (1 - tail if lead > 0 else tail)
        return NormalDist().cdf(lead / math.sqrt(variance / self.pairs))


def _elo(score: float) -> float | None:
    """The Elo difference of an expected score; None if it is infinite."""
    return ELO * math.log(score / (1 - score)) if 1e-9 < score < 1 - 1e-9 else None


def expected_score(elo: float) -> float:
    """The expected score of a player who is `elo` stronger.

    >>> expected_score(0), round(expected_score(400), 3)
    (0.5, 0.909)
    """
    return 1 / (1 + math.exp(-elo / ELO))
