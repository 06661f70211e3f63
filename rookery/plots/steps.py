"""Reads the steps of a run from its metrics file, and the strength of its versions, to be drawn.

`rookery serve arena` measures the strength while the run trains.
"""

import json
import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

from rookery.errors import InvalidInput, NotFound

METRICS_FILE = "metrics.jsonl"

Step: TypeAlias = dict[str, float]


def read_metrics(path: Path) -> list[Step]:
    """The steps in order, each with its finite numbers.

    A step that was trained again after a restart is returned once, with its last values. An incomplete last
    line, left by a trainer killed while writing, is ignored. Raises `NotFound` if there is no such file,
    `InvalidInput` if another line is not a JSON object with a step number.
    """
    try:
        lines = path.read_text(errors="replace").split("\n")
    except FileNotFoundError:
        raise NotFound(f"no metrics file {str(path)!r}: the trainer writes it") from None
    steps: dict[int, Step] = {}
    for number, line in enumerate(lines, start=1):
        try:
            step = _finite_numbers(json.loads(line))
            steps[int(step["step"])] = step
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if number < len(lines):
                raise InvalidInput(f"{path}:{number}: not a step: {error!r} in {line[:120]!r}") from error
    return [steps[number] for number in sorted(steps)]


def _finite_numbers(entry: Any) -> Step:
    if not isinstance(entry, dict):
        raise TypeError("not a JSON object")
    return {
        key: float(value)
        for key, value in entry.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def keys_of(steps: Sequence[Step]) -> list[str]:
    """The names of all statistics in the steps, in alphabetical order."""
    return sorted({key for step in steps for key in step})


def matching(keys: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The keys that match a pattern, in the order of the patterns, without duplicates.

    >>> matching(["kl_a", "kl_b", "reward"], ["reward", "kl*"])
    ['reward', 'kl_a', 'kl_b']
    """
    return list(dict.fromkeys(k for pattern in patterns for k in keys if fnmatchcase(k, pattern)))


def series(steps: Sequence[Step], key: str) -> tuple[list[float], list[float]]:
    """The step numbers and values of one statistic, for the steps that have it."""
    measured = [(step["step"], step[key]) for step in steps if key in step]
    return [number for number, _ in measured], [value for _, value in measured]


def smooth(values: Sequence[float]) -> list[float]:
    """Centred moving mean over a tenth of the steps, with a narrower window at both ends.

    >>> smooth([1.0, 1.0, 4.0])
    [1.0, 2.0, 2.5]
    """
    reach = max(1, len(values) // 20)
    sums = [0.0, *accumulate(values)]
    bounds = [(max(i - reach, 0), min(i + reach + 1, len(values))) for i in range(len(values))]
    return [(sums[high] - sums[low]) / (high - low) for low, high in bounds]


STRENGTH_FILE = "strength.jsonl"
PREFIX = "evaluation_"
"""The beginning of the keys of a version's figures."""


def read_strength(folder: Path) -> list[dict[str, Any]]:
    """The lines of `folder`'s strength.jsonl by version; none if there is no such file.

    Lines with other settings than the last one are left out, because their figures cannot be compared. So is
    a line that has an equal or lower version after it: the run went back, and made its version again. Raises
    `InvalidInput` if a line is not one that the arena wrote.
    """
    path = folder / STRENGTH_FILE
    lines = path.read_text().splitlines() if path.exists() else []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            as_step(row)
            rows = [earlier for earlier in rows if earlier["version"] < row["version"]] + [row]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path}:{number}: not an evaluation: {error!r} in {line[:120]!r}") from error
    return [row for row in rows if row["settings"] == rows[-1]["settings"]]


def as_step(row: Mapping[str, Any]) -> Step:
    """The figures of a line as those of a training step: `evaluation_NAME`, and `_low` and `_high` of each.

    A mean or a bound that is missing or infinite is left out.

    >>> as_step({"version": 5, "sha256": "", "settings": "", "seconds": 9.0,
    ...          "metrics": {"elo": {"mean": None, "ci95": [183.0, None]}}})
    {'step': 5.0, 'evaluation_seconds': 9.0, 'evaluation_elo_low': 183.0}
    """
    step = {"step": float(row["version"]), f"{PREFIX}seconds": float(row["seconds"])}
    for name, estimate in row["metrics"].items():
        low, high = estimate["ci95"] or (None, None)
        figures = {"": estimate["mean"], "_low": low, "_high": high}
        step |= {
            f"{PREFIX}{name}{suffix}": float(value)
            for suffix, value in figures.items()
            if value is not None and math.isfinite(value)
        }
    return step


def strength_steps(folder: Path) -> Sequence[Step]:
    """The evaluated versions of a run as steps that can be drawn. Raises as `read_strength`."""
    return [as_step(row) for row in read_strength(folder)]
