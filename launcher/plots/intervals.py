"""Confidence intervals of a mean and of a difference: over seeds, or over blocks of a run's steps.

Runs with different seeds are independent samples, but there are few. A bootstrap of two or three values
never leaves their range, so the interval over seeds is Student's, and Welch's for a difference
(Biometrika 34, 1947).

A single run says nothing about other seeds, but its steps tell how uncertain its own mean is. Successive
steps are correlated, so blocks of them are resampled (Kuensch, Annals of Statistics 17, 1989; circular).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"

RESAMPLES = 5_000
LEVEL = 0.95

LEAST_BLOCKS = 4
"""With fewer blocks, resampling says almost nothing: for one block, the interval would have no width."""

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""97.5% quantiles of Student's t with 1 to 20 degrees of freedom. More than 20 are treated as 20."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95% interval. The bounds are infinite if there are too few steps for an interval."""

    mean: float
    low: float
    high: float


def over_seeds(values: Sequence[float], less: Sequence[float] = ()) -> Interval:
    """The mean of `values`, or that mean minus the mean of `less`. Each needs two or more values.

    >>> over_seeds([0.0, 2.0])
    Interval(mean=1.0, low=-11.706, high=13.706)
    """
    mean = statistics.fmean(values) - (statistics.fmean(less) if less else 0.0)
    parts = [(statistics.variance(side) / len(side), len(side) - 1) for side in (values, less) if side]
    squared = math.fsum(part for part, _ in parts)
    # Welch-Satterthwaite; with one side it is n - 1. With zero variance the value does not matter.
    freedom = squared**2 / math.fsum(p * p / n for p, n in parts) if squared else 1.0
    reach = _STUDENT[min(int(freedom + 1e-9), len(_STUDENT)) - 1] * math.sqrt(squared)
    return Interval(mean, mean - reach, mean + reach)


def over_blocks(drawn: Floats, mean: float) -> Interval:
    """The percentile interval of resampled means, or of their differences. Unbounded if any is NaN."""
    import numpy as np

    if np.isnan(drawn).any():
        return Interval(mean, -math.inf, math.inf)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))


def block_means(values: Sequence[float], *, seed: int) -> Floats:
    """Resampled means over circular blocks of consecutive values, [RESAMPLES]. NaN if too few blocks."""
    import numpy as np

    rng = np.random.default_rng(seed)
    array, size = np.asarray(values, dtype=np.float64), block_size(len(values))
    blocks = math.ceil(len(array) / size)
    if blocks < LEAST_BLOCKS:
        return np.full(RESAMPLES, np.nan)
    starts = rng.integers(len(array), size=(RESAMPLES, blocks))
    places = (starts[:, :, None] + np.arange(size)) % len(array)
    return np.asarray(array[places.reshape(RESAMPLES, -1)[:, : len(array)]].mean(axis=1))


def block_size(count: int) -> int:
    """The cube root of the number of steps: the optimal order for the variance of a mean.

    >>> [block_size(n) for n in (1, 30, 1000)]
    [1, 4, 10]
    """
    return max(1, math.ceil(round(math.cbrt(count), 6)))
