"""Estimates a rating from successes and failures against opponents, or puzzles, of known ratings."""

import math
from collections.abc import Callable, Sequence

from services.arena.stats import Estimate

_SCALE = math.log(10) / 400
_Z95 = 1.959964
_TAIL = 0.05
_FAR = 4000.0
"""How far beyond the known ratings an estimate or a bound is looked for."""


def expected(rating: float, other: float) -> float:
    """The expected score against `other`, by Elo's logistic formula.

    >>> expected(1900, 1500) > 0.9, expected(1500, 1500)
    (True, 0.5)
    """
    return 1.0 / (1.0 + math.exp(-_SCALE * (rating - other)))


def estimate_rating(ratings: Sequence[float], solved: Sequence[bool]) -> Estimate:
    """The likeliest rating, with a 95% interval from the Fisher information.

    If all or none are solved, there is no likeliest rating, but a bound: with a rating beyond it, the result
    would have had a probability below 5%.

    >>> estimate_rating([1500, 1500], [True, False]).mean
    1500.0
    >>> estimate_rating([1500.0], [False])
    Estimate(mean=None, ci95=(-inf, 2011.5))
    """
    if not ratings:
        return Estimate(None, None)
    low, high = min(ratings) - _FAR, max(ratings) + _FAR

    def log_chance(rating: float) -> float:
        return sum(math.log(expected(rating, other) if right else expected(other, rating))
                   for other, right in zip(ratings, solved, strict=True))  # fmt: skip

    if not any(solved):
        return Estimate(None, (-math.inf, _root(lambda r: math.log(_TAIL) - log_chance(r), low, high)))
    if all(solved):
        return Estimate(None, (_root(lambda r: log_chance(r) - math.log(_TAIL), low, high), math.inf))
    mean = _root(lambda r: sum(expected(r, other) for other in ratings) - sum(solved), low, high)
    information = _SCALE**2 * sum(expected(mean, other) * expected(other, mean) for other in ratings)
    margin = _Z95 / math.sqrt(information)
    return Estimate(mean, (mean - margin, mean + margin))


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where the rising function is 0, by bisection, to a tenth of a point."""
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return round((low + high) / 2, 1)
