"""Means with confidence intervals, by a bootstrap over positions that is paired between players.

The answers to one position are not independent, because they share its difficulty. If they were resampled as
independent, a rate over 500 positions x 4 samples would seem as precise as 2,000 independent answers.
What was drawn at random is the positions, so whole positions are resampled. All players answer the same
positions, and each resample has the same ones for all players, so the difficulty of the positions cancels out
of a difference of two players.

Every figure here is a ratio of two sums over positions (legal answers / answers, regret / legal answers),
whose numerator and denominator are resampled together. Nothing here depends on chess.

If all positions are alike, so are all resamples, and the interval of 20 right answers in 20 would have no
width. So a share has Wilson's interval then, with as many trials as positions, and always if there is no more
than one answer to a position, because that is an ordinary binomial share.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rookery.intervals import wilson

RESAMPLES = 10_000
LEVEL = 0.95

_CHUNK = 1_000
_MOST_UNDEFINED = 0.05
"""There is no interval if more than this share of the resamples has no answer to average."""

Floats: TypeAlias = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ratio:
    """A mean as sums and counts: entry i has the sum over position i's answers, and their number.

    >>> Ratio.of([3.0, 1.0], [4, 4]).mean
    0.5
    >>> Ratio.of([0.0], [0]).mean is None
    True
    """

    sums: Floats
    counts: Floats

    @classmethod
    def of(cls, sums: Sequence[float], counts: Sequence[float] | None = None) -> "Ratio":
        """Without `counts`, every position has one answer."""
        counts = [1] * len(sums) if counts is None else counts
        return cls(np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64))

    @classmethod
    def of_values(cls, value: Callable[[T], float | None], side: Sequence[T | None]) -> "Ratio":
        """The values of one answer to each position, which does not count where it or its value is None."""
        values = [None if answer is None else value(answer) for answer in side]
        return cls.of([value or 0.0 for value in values], [value is not None for value in values])

    @property
    def mean(self) -> float | None:
        """The mean over all answers, or None if there are none."""
        total = float(self.counts.sum())
        return float(self.sums.sum()) / total if total else None

    @property
    def positions(self) -> int:
        """How many positions have an answer."""
        return int((self.counts > 0).sum())

    @property
    def binomial(self) -> bool:
        """Whether each position has one answer or none, which is right or wrong."""
        return bool(((self.counts == 0) | (self.counts == 1)).all() and np.isin(self.sums, (0, 1)).all())

    def within(self, mask: ArrayLike) -> "Ratio":
        """The ratio over only the positions in `mask`."""
        return Ratio(np.where(mask, self.sums, 0.0), np.where(mask, self.counts, 0.0))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its interval. `mean` is None without answers, `ci95` with none or too few.

    The interval of what is no share has width zero if all positions have the same value. That does not mean
    that the truth is known exactly.
    """

    mean: float | None
    ci95: tuple[float, float] | None


class Bootstrap(Generic[Key]):
    """Resampled means of several ratios, all with the same resamples of the same positions.

    >>> half = Ratio.of([1.0, 0.0, 1.0, 0.0], [1, 1, 1, 1])
    >>> Bootstrap({"a": half, "b": half}, seed=0, resamples=100).difference("a", "b")
    Estimate(mean=0.0, ci95=(0.0, 0.0))
    """

    def __init__(self, ratios: Mapping[Key, Ratio], *, seed: int, resamples: int = RESAMPLES) -> None:
        """Draws the resamples. Raises `ValueError` if the ratios have different numbers of positions, or
        none."""
        sizes = {column.shape for ratio in ratios.values() for column in (ratio.sums, ratio.counts)}
        if len(sizes) != 1 or sizes == {(0,)}:
            raise ValueError(f"ratios of unequal or no positions: {sorted(sizes)}")
        self._ratios, self._columns = ratios, {key: column for column, key in enumerate(ratios)}
        means = [ratio.mean for ratio in ratios.values()]
        self._means = np.array([[np.nan if mean is None else mean for mean in means]])
        self._drawn = _resampled(list(ratios.values()), seed=seed, resamples=resamples)

    def estimate(self, key: Key, *, share: bool = False) -> Estimate:
        """The mean of one ratio, which may be a share: of 0 to 1 for each answer."""
        drawn, ratio = self.combine(lambda means: means[:, 0], [key]), self._ratios[key]
        if not share or drawn.mean is None or not (ratio.binomial or _alike(drawn)):
            return drawn
        return replace(drawn, ci95=wilson(drawn.mean * ratio.positions, ratio.positions))

    def difference(self, minuend: Key, subtrahend: Key, *, share: bool = False) -> Estimate:
        """The difference of two means, paired by position.

        If one of two shares is the same at all positions, the interval is Newcombe's, from those of the two
        (Statistics in Medicine 17 (1998), 873-890, method 10; such sides are not correlated). If instead no
        position tells the two apart, they differ at most as often as Wilson's bound for 0 in n allows.
        """
        keys = [minuend, subtrahend]
        drawn = self.combine(lambda means: means[:, 0] - means[:, 1], keys)
        if not share or drawn.mean is None:
            return drawn
        intervals = [self.estimate(key, share=True).ci95 for key in keys]
        (p, q), (first, second) = self._means[0, [self._columns[key] for key in keys]], intervals
        if any(_alike(self.estimate(key)) for key in keys) and first and second:
            below, above = math.hypot(p - first[0], second[1] - q), math.hypot(first[1] - p, q - second[0])
        elif _alike(drawn):
            below = above = wilson(0, min(self._ratios[key].positions for key in keys))[1]
        else:
            return drawn
        return replace(drawn, ci95=(drawn.mean - below, drawn.mean + above))

    def combine(self, function: Callable[[Floats], Floats], keys: Sequence[Key]) -> Estimate:
        """A function of the means of `keys`: from a column for each key, a value for each row."""
        columns = [self._columns[key] for key in keys]
        mean = float(function(self._means[:, columns])[0])
        return Estimate(None if np.isnan(mean) else mean, _interval(function(self._drawn[:, columns])))


def _resampled(ratios: Sequence[Ratio], *, seed: int, resamples: int) -> Floats:
    """Means by resample (row) and ratio (column); NaN if a resample has no answer to average."""
    rng = np.random.default_rng(seed)
    sums = np.stack([ratio.sums for ratio in ratios], axis=1)
    counts = np.stack([ratio.counts for ratio in ratios], axis=1)
    positions = len(sums)
    chunks = []
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        # Only how often each position is drawn matters, so all resamples of a chunk are one matrix product.
        weights = rng.multinomial(positions, np.full(positions, 1 / positions), size=size).astype(np.float64)
        drawn_counts = weights @ counts
        means = np.full_like(drawn_counts, np.nan)
        np.divide(weights @ sums, drawn_counts, out=means, where=drawn_counts > 0)
        chunks.append(means)
    return np.concatenate(chunks)


def _alike(estimate: Estimate) -> bool:
    """Whether all resamples have the same mean, but for rounding."""
    return estimate.ci95 is not None and math.isclose(*estimate.ci95, abs_tol=1e-12)


def _interval(means: Floats) -> tuple[float, float] | None:
    defined = means[~np.isnan(means)]
    if len(defined) < (1 - _MOST_UNDEFINED) * len(means):
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
