"""Reads the strength of a run's versions, which `python -m services.arena watch` measures while it trains."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rookery.errors import InvalidInput
from rookery.plots.steps import Step

STRENGTH_FILE = "strength.jsonl"
PREFIX = "evaluation_"


def read_strength(folder: Path) -> list[dict[str, Any]]:
    """The lines of `folder`'s strength.jsonl by version; none if there is no such file.

    Lines with other settings than the last one are left out, because their figures cannot be compared. So is
    a line that has an equal or lower version after it: the run went back, and made its version again.

    Raises:
        InvalidInput: a line is not one that the arena wrote.
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
            raise InvalidInput(f"{path}:{number}: no evaluation: {error!r} in {line[:120]!r}") from error
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
        named = {"": estimate["mean"], "_low": low, "_high": high}
        step |= {
            f"{PREFIX}{name}{suffix}": float(value)
            for suffix, value in named.items()
            if value is not None and math.isfinite(value)
        }
    return step


def strength_steps(folder: Path) -> Sequence[Step]:
    """The evaluated versions of a run as steps that can be drawn. Raises as `read_strength`."""
    return [as_step(row) for row in read_strength(folder)]
