"""The artifacts of a run that are also kept in MLflow: its figures and settings, and the model it made."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from rookery.plots import CURVES_FILE
from rookery.plots.panels import choose
from rookery.plots.picture import Curve, draw
from rookery.plots.steps import METRICS_FILE, keys_of, read_metrics
from services.trainer.versions import commits

Artifact: TypeAlias = tuple[Path, str | None]
"""A file, and the artifact folder for it."""

_FIGURES = (METRICS_FILE, CURVES_FILE, "report.json", "calibration.png")

_FOR_RESUMING = {commits.OPTIMIZER, commits.STATE, commits.SUMS}


def left_behind(folder: Path) -> list[Artifact]:
    """Returns the files of a run's folder to keep; of an adapter's versions only the newest.

    Draws the curves of metrics.jsonl first.
    """
    metrics = folder / METRICS_FILE
    if metrics.exists() and (steps := read_metrics(metrics)):
        (folder / CURVES_FILE).write_bytes(draw([Curve("", (steps,))], choose(keys_of(steps))))
    figures = [folder / name for name in _FIGURES]
    kept: list[Artifact] = [
        (path, None) for path in (*figures, *sorted(folder.glob("*.toml"))) if path.exists()
    ]
    newest = list(commits.folders(folder / "adapters").values())[-1:]
    for made in (*newest, folder / "model"):
        kept += _served(made)
    return kept


def _served(made: Path) -> Iterator[Artifact]:
    """Yields the files that a server loads, under `adapter` or `model`."""
    place = "adapter" if (made / "adapter_model.safetensors").exists() else "model"
    for path in sorted(made.glob("*")):
        if path.name not in _FOR_RESUMING:
            yield path, place
