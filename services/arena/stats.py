"""Means with confidence intervals, by a bootstrap over positions that is paired between players.

The answers to one position are not independent, because they share its difficulty. If they were resampled as
independent, a rate over 500 positions x 4 samples would seem as precise as 2,000 independent answers.
What was drawn at random is the positions, so whole positions are resampled. All players answer the same
positions, and each resample has the same ones for all players, so the difficulty of the positions cancels out
of a difference of two players.

Every figure here is a ratio of two sums over positions (legal answers / answers, regret / legal answers),
whose numerator and denominator are resampled together. Nothing here depends on chess.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
LEVEL = 0.95

_CHUNK = 1_000
_MOST_UNDEFINED = 0.05
"""There is no interval if more than this share of the resamples has no answer to average."""

Floats: TypeAlias = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)


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
    def of(cls, sums: Sequence[float], counts: Sequence[float]) -> "Ratio":
        return cls(np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64))

    @property
    def mean(self) -> float | None:
        """The mean over all answers, or None if there are none."""
        total = float(self.counts.sum())
        return float(self.sums.sum()) / total if total else None

    def within(self, mask: NDArray[np.bool_]) -> "Ratio":
        """The ratio over only the positions in `mask`."""
        return Ratio(np.where(mask, self.sums, 0.0), np.where(mask, self.counts, 0.0))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its percentile interval. `mean` is None without answers, `ci95` with none or too few.

    An interval of width zero means that all n positions have the same value, not that the truth is known
    exactly: of other positions, up to about 3 in n may still differ.
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
        """Draws the resamples.

        Raises:
            ValueError: the ratios have different numbers of positions, or none.
        """
        sizes = {column.shape for ratio in ratios.values() for column in (ratio.sums, ratio.counts)}
        if len(sizes) != 1 or sizes == {(0,)}:
            raise ValueError(f"ratios of unequal or no positions: {sorted(sizes)}")
        self._columns = {key: column for column, key in enumerate(ratios)}
        means = [ratio.mean for ratio in ratios.values()]
        self._means = np.array([[np.nan if mean is None else mean for mean in means]])
        self._drawn = _resampled(list(ratios.values()), seed=seed, resamples=resamples)

    def estimate(self, key: Key) -> Estimate:
        """The mean of one ratio."""
        return self.combine(lambda means: means[:, 0], [key])

    def difference(self, minuend: Key, subtrahend: Key) -> Estimate:
        """The difference of two means, paired by position."""
        return self.combine(lambda means: means[:, 0] - means[:, 1], [minuend, subtrahend])

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


def _interval(means: Floats) -> tuple[float, float] | None:
    defined = means[~np.isnan(means)]
    if len(defined) < (1 - _MOST_UNDEFINED) * len(means):
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
