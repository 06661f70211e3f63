"""The curves of a run as the page draws them, in the panels of `rookery plot`."""

from collections.abc import Sequence
from typing import Any

from rookery.plots.panels import OVERVIEW, PANELS, STRENGTH, Panel, choose, label_of
from rookery.plots.steps import Step, keys_of, series
from services.viewer.runs import RunFolder


def curves(run: RunFolder, *, all: bool = False) -> dict[str, Any]:
    """The panels of training, `all` or the main ones, and those of the strength of versions."""
    return {
        "training": _panels(run.metrics(), PANELS if all else OVERVIEW),
        "strength": _panels(run.strength(), STRENGTH),
    }


def _panels(steps: list[Step], panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The panels that have data, each with its series. Dotted ones are references."""
    if not steps:
        return []
    return [
        {
            "title": panel.title,
            "low": panel.low,
            "high": panel.high,
            "series": [
                _series(steps, key, dotted=key in panel.references)
                for key in (*panel.keys, *panel.references)
            ],
        }
        for panel in choose(keys_of(steps), panels=panels)
    ]


def _series(steps: list[Step], key: str, *, dotted: bool) -> dict[str, Any]:
    x, y = series(steps, key)
    return {"key": key, "label": label_of(key), "dotted": dotted, "x": x, "y": y}
