"""Compares configurations with the first one: means of the last steps, and their differences, with intervals.

Runs with different seeds are independent samples, but there are few. A bootstrap of two or three values
never leaves their range, so the interval over seeds is Student's, and Welch's for a difference
(Biometrika 34, 1947).

A single run says nothing about other seeds, but its steps tell how uncertain its own mean is. Successive
steps are correlated, so blocks of them are resampled (Kuensch, Annals of Statistics 17, 1989; circular).
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from launcher.plots.runs import Configuration, Run
from rookery.errors import InvalidInput
from rookery.plots.steps import Step, keys_of, matching, series

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"

RESAMPLES = 5_000
LEVEL = 0.95

WINDOW = 0.2
"""Share of each run's steps, counted from the end, over which means are computed unless told otherwise."""

NO_CHANGE = "no change"
"""The name of the configuration without a change."""

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
    reach = _student(freedom) * math.sqrt(squared)
    return Interval(mean, mean - reach, mean + reach)


def _student(freedom: float) -> float:
    return _STUDENT[min(int(freedom + 1e-9), len(_STUDENT)) - 1]


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


KEYS = (
    "reward", "legal_rate", "box_rate", "regret", "entropy", "zero_variance_share", "identical_answers",
    "distinct_candidates", "piece_distance", "kl_reference", "kl_behaviour", "loss",
    "accuracy", "grad_norm", "completion_length", "age_mean", "step_s", "tokens_per_s", "mfu",
    "resident_peak_mib", "cuda_peak_mib", "evaluation_legal_rate_greedy", "evaluation_legal_rate",
    "evaluation_regret_legal_greedy", "evaluation_regret_legal", "evaluation_action_accuracy_greedy",
    "evaluation_action_accuracy", "evaluation_distinct_candidates", "evaluation_solved",
)  # fmt: skip
"""The statistics that are compared by default."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One statistic of one configuration. `difference` is to the first configuration; None for the first."""

    key: str
    configuration: str
    value: Interval
    difference: Interval | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. `method` describes how the intervals were computed. For `effects`, the
    configurations are `NO_CHANGE` and each change alone, as estimated."""

    configurations: tuple[str, ...]
    window_steps: tuple[int, ...]
    method: str
    figures: tuple[Figure, ...]

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values. Unknown bounds of an interval are null."""
        plain = asdict(self)
        for figure in plain["figures"]:
            for interval in filter(None, (figure["value"], figure["difference"])):
                interval |= {k: v if math.isfinite(v) else None for k, v in interval.items()}
        return {"level": LEVEL, "resamples": RESAMPLES, **plain}


def compare(
    configurations: Sequence[Configuration], *, window: float = WINDOW, keys: Sequence[str], seed: int = 0
) -> Comparison:
    """Compares means over the last steps of each run. `window` is the share of its steps that count.

    The intervals are over seeds if every configuration has two or more runs, else over steps. Runs of the
    same seed are compared in pairs if all configurations have the same seeds. Raises `InvalidInput` if no
    requested statistic is in all of the runs.
    """
    chosen = _shared([run for configuration in configurations for run in configuration.runs], window, keys)
    several = all(len(configuration.runs) > 1 for configuration in configurations)
    figures = [
        figure
        for key in chosen
        for figure in (
            _by_seeds(key, configurations, window)
            if several
            else _by_steps(key, configurations, window, seed)
        )
    ]
    windows = tuple(len(_window(c.runs[0], window)) for c in configurations)
    names = tuple(configuration.name for configuration in configurations)
    method = _method(windows, several=several, paired=same_seeds(configurations))
    return Comparison(names, windows, method, tuple(figures))


def effects(runs: Sequence[Run], changes: Mapping[str, Sequence[bool]], *, keys: Sequence[str]) -> Comparison:
    """What each change does, from runs that make several changes at once.

    Ordinary least squares: a statistic is the sum of a mean, an effect of each seed, and one of each change.
    The intervals are Student's. `changes` says by which runs each is made. Raises `InvalidInput` if the runs
    do not tell the changes apart, or no statistic is in all of them.
    """
    import numpy as np

    chosen, seeds = _shared(runs, WINDOW, keys), sorted({str(run.seed) for run in runs})
    # Seeds are coded as -1, 0 and 1 so that the constant is their mean.
    blocks = [[(str(run.seed) == seed) - (str(run.seed) == seeds[0]) for run in runs] for seed in seeds[1:]]
    design = np.array([[True] * len(runs), *changes.values(), *blocks], dtype=np.float64).T
    freedom = len(runs) - design.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        raise InvalidInput(
            f"{len(runs)} runs of {len(seeds)} seeds do not tell apart the changes {'; '.join(changes)}"
        )
    values = np.array([[_mean(run, key, WINDOW) for key in chosen] for run in runs])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ values  # [mean, changes and seeds; statistics]
    noise = ((values - design @ coefficients) ** 2).sum(axis=0) / freedom

    def estimate(weights: Floats, column: int) -> Interval:
        mean = float(weights @ coefficients[:, column])
        reach = _student(freedom) * math.sqrt(weights @ inverse @ weights * noise[column])
        return Interval(mean, mean - reach, mean + reach)

    names, unit = (NO_CHANGE, *changes), np.eye(design.shape[1])
    figures = tuple(
        Figure(
            key,
            name,
            estimate(unit[0] + unit[row] if row else unit[0], column),
            estimate(unit[row], column) if row else None,
        )
        for column, key in enumerate(chosen)
        for row, name in enumerate(names)
    )
    windows = tuple(sorted({len(_window(run, WINDOW)) for run in runs}))
    method = f"least squares over {len(runs)} runs with {freedom} degrees of freedom, Student's t"
    return Comparison(names, windows, method, figures)


def _shared(runs: Sequence[Run], window: float, keys: Sequence[str]) -> list[str]:
    shared = sorted(set.intersection(*(set(keys_of(_window(run, window))) for run in runs)))
    chosen = [key for key in matching(shared, keys or KEYS) if key != "step"]
    if not chosen:
        raise InvalidInput(f"no statistic of {', '.join(keys or KEYS)} is in all runs; they share {shared}")
    return chosen


def same_seeds(configurations: Sequence[Configuration]) -> bool:
    """Whether all configurations have the same seeds, each once."""
    seeds = [sorted(str(run.seed) for run in c.runs) for c in configurations]
    if any(run.seed is None for c in configurations for run in c.runs):
        return False
    return len(set(seeds[0])) == len(seeds[0]) and all(each == seeds[0] for each in seeds)


def _by_seeds(key: str, configurations: Sequence[Configuration], window: float) -> Iterator[Figure]:
    runs = [sorted(c.runs, key=lambda run: str(run.seed)) for c in configurations]
    means = [[_mean(run, key, window) for run in group] for group in runs]
    paired = same_seeds(configurations)
    for place, configuration in enumerate(configurations):
        difference = None
        if place and paired:
            difference = over_seeds([a - b for a, b in zip(means[place], means[0], strict=True)])
        elif place:
            difference = over_seeds(means[place], means[0])
        yield Figure(key, configuration.name, over_seeds(means[place]), difference)


def _by_steps(
    key: str, configurations: Sequence[Configuration], window: float, seed: int
) -> Iterator[Figure]:
    means = [statistics.fmean(_mean(run, key, window) for run in c.runs) for c in configurations]
    drawn = [_resampled(c, key, window, seed=seed + place) for place, c in enumerate(configurations)]
    for place, configuration in enumerate(configurations):
        value = over_blocks(drawn[place], means[place])
        difference = over_blocks(drawn[place] - drawn[0], means[place] - means[0]) if place else None
        yield Figure(key, configuration.name, value, difference)


def _resampled(configuration: Configuration, key: str, window: float, *, seed: int) -> Floats:
    first, *others = (
        block_means(_values(run, key, window), seed=1000 * seed + place)
        for place, run in enumerate(configuration.runs)
    )
    for means in others:
        first += means
    return first / len(configuration.runs)


def _window(run: Run, window: float) -> tuple[Step, ...]:
    return run.steps[-max(1, math.ceil(window * len(run.steps))) :]


def _values(run: Run, key: str, window: float) -> list[float]:
    return series(_window(run, window), key)[1]


def _mean(run: Run, key: str, window: float) -> float:
    return statistics.fmean(_values(run, key, window))


def _method(windows: Sequence[int], *, several: bool, paired: bool) -> str:
    if several:
        return "Student's t over seeds, " + (
            "for differences over pairs of runs of the same seed" if paired else "Welch's for differences"
        )
    blocks = " or ".join(map(str, sorted({block_size(count) for count in windows})))
    return (
        f"bootstrap over blocks of {blocks} consecutive steps, for want of several seeds of each: "
        "how sure these very runs are, not what another seed would bring"
    )
