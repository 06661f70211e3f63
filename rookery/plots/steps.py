"""The steps of a run as its trainer wrote them down, and the smoothing that makes them readable."""

import json
import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

from rookery.errors import InvalidInput, NotFound

METRICS_FILE = "metrics.jsonl"

Step: TypeAlias = dict[str, float]


def read_metrics(path: Path) -> list[Step]:
    """Steps in order, each with its finite numbers; a step trained again after a restart counts once.

    A last line without its end (a trainer killed while writing) is passed over.

    Raises:
        NotFound: there is no such file.
        InvalidInput: another line is not a JSON object with a step.
    """
    try:
        lines = path.read_text(errors="replace").split("\n")
    except FileNotFoundError:
        raise NotFound(f"no learning curve without {str(path)!r}: the trainer writes it") from None
    steps: dict[int, Step] = {}
    for number, line in enumerate(lines, start=1):
        try:
            step = _numbers(json.loads(line))
            steps[int(step["step"])] = step
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if number < len(lines):
                raise InvalidInput(f"{path}:{number}: no step: {error!r} in {line[:120]!r}") from error
    return [steps[number] for number in sorted(steps)]


def _numbers(entry: Any) -> Step:
    if not isinstance(entry, dict):
        raise TypeError("no JSON object")
    return {
        key: float(value)
        for key, value in entry.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def keys_of(steps: Sequence[Step]) -> list[str]:
    """Every statistic that any step has, in alphabetical order."""
    return sorted({key for step in steps for key in step})


def matching(keys: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The keys that a pattern asks for, in the order of the patterns, each once.

    >>> matching(["kl_a", "kl_b", "reward"], ["reward", "kl*"])
    ['reward', 'kl_a', 'kl_b']
    """
    return list(dict.fromkeys(k for pattern in patterns for k in keys if fnmatchcase(k, pattern)))


def series(steps: Sequence[Step], key: str) -> tuple[list[float], list[float]]:
    """Step numbers and values of one statistic, where it was measured."""
    measured = [(step["step"], step[key]) for step in steps if key in step]
    return [number for number, _ in measured], [value for _, value in measured]


def smooth(values: Sequence[float]) -> list[float]:
    """Centred moving mean over a tenth of the steps, narrower at the ends: it neither lags nor leads.

    >>> smooth([1.0, 1.0, 4.0])
    [1.0, 2.0, 2.5]
    """
    reach = max(1, len(values) // 20)
    sums = [0.0, *accumulate(values)]
    bounds = [(max(i - reach, 0), min(i + reach + 1, len(values))) for i in range(len(values))]
    return [(sums[high] - sums[low]) / (high - low) for low, high in bounds]
