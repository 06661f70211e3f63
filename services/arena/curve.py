"""The learning curve of a run, drawn from the metrics.jsonl that its trainer writes.

Draws the panels for which there are figures and leaves out the rest. It judges nothing: these are
training batches of a moving policy, the held-out comparison is `services.arena.measures`.
"""

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rookery.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS_FILE = "metrics.jsonl"
CURVE_FILE = "learning_curve.png"

Theme: TypeAlias = Literal["light", "dark"]
Step: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes: the statistics drawn there, in one unit, and the range that unit has."""

    title: str
    keys: tuple[str, ...]
    low: float | None = None
    high: float | None = None


PANELS = (
    Panel("Reward", ("reward",)),
    Panel("Share of answers", ("legal_rate", "box_rate"), low=0.0, high=1.03),
    Panel("Regret of legal moves", ("regret",), low=0.0),
    Panel("Entropy, nats per token", ("entropy",), low=0.0),
    Panel("KL, nats per token", ("kl", "kl_behaviour")),
    Panel("Gradient norm", ("grad_norm",), low=0.0),
    Panel("Seconds per step", ("step_s", "rollout_wait_s"), low=0.0),
    Panel("Age of groups, versions", ("age_mean", "age_max"), low=0.0),
)

_LABELS = {
    "legal_rate": "legal move",
    "box_rate": "readable box",
    "kl": "to the reference",
    "kl_behaviour": "to the sampling policy",
    "step_s": "whole step",
    "rollout_wait_s": "waiting for rollouts",
    "age_mean": "mean",
    "age_max": "oldest",
}
_COLOURS: dict[Theme, tuple[str, str]] = {"light": ("#2563a8", "#c2571a"), "dark": ("#7ab3ef", "#f0a268")}
_INK: dict[Theme, str] = {"light": "#24292f", "dark": "#d7dce2"}
_PAPER: dict[Theme, str] = {"light": "#ffffff", "dark": "#16191d"}
_MOST_COLUMNS = 4


def read_metrics(path: Path) -> list[Step]:
    """Steps in order, each with its finite numbers; a step trained again after a restart counts once.

    A last line without its end (a trainer killed while writing) is passed over.

    Raises:
        NotFound: there is no such file.
        InvalidInput: another line is not a JSON object with a step.
    """
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise NotFound(f"no learning curve without {str(path)!r}: the trainer writes it") from None
    steps: dict[int, Step] = {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            steps[int(entry["step"])] = _numbers(entry)
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            if number < len(lines):
                raise InvalidInput(f"{path}:{number}: no step: {error!r} in {line[:120]!r}") from error
    return [steps[number] for number in sorted(steps)]


def _numbers(entry: dict[str, Any]) -> Step:
    return {
        key: float(value)
        for key, value in entry.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def draw(steps: Sequence[Step], *, theme: Theme = "light") -> bytes:
    """The curve as PNG: smoothed in full colour, as measured in light.

    Raises:
        InvalidInput: no step has any of the statistics.
    """
    panels = [panel for panel in PANELS if any(key in step for step in steps for key in panel.keys)]
    if not panels:
        known = ", ".join(key for panel in PANELS for key in panel.keys)
        raise InvalidInput(f"nothing to draw: {len(steps)} steps, none with any of {known}")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = math.ceil(len(panels) / _MOST_COLUMNS)
    columns = math.ceil(len(panels) / rows)
    with mpl.rc_context(_style(theme)):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
        figure = Figure(figsize=(3.0 * columns, 2.35 * rows), layout=layout)
        FigureCanvasAgg(figure)
        for index, panel in enumerate(panels):
            _panel(figure.add_subplot(rows, columns, index + 1), panel, steps, theme=theme)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=140, metadata={"Software": "rookery"})
    return buffer.getvalue()


def _panel(axes: "Axes", panel: Panel, steps: Sequence[Step], *, theme: Theme) -> None:
    for key, colour in zip(panel.keys, _COLOURS[theme], strict=False):
        measured = [(step["step"], step[key]) for step in steps if key in step]
        if not measured:
            continue
        numbers, values = zip(*measured, strict=True)
        axes.plot(numbers, values, color=colour, alpha=0.3, linewidth=0.8)
        axes.plot(numbers, smooth(values), color=colour, linewidth=1.8, label=_LABELS.get(key))
    axes.set_title(panel.title)
    axes.set_xlabel("step")
    axes.margins(x=0.01)
    if panel.high is not None or panel.low is not None:
        axes.set_ylim(bottom=panel.low, top=panel.high)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(framealpha=0.85, edgecolor="none")


def smooth(values: Sequence[float]) -> list[float]:
    """Centred moving mean over a tenth of the steps, narrower at the ends: it neither lags nor leads.

    >>> smooth([1.0, 1.0, 4.0])
    [1.0, 2.0, 2.5]
    """
    reach = max(1, len(values) // 20)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    centre = np.arange(len(values))
    low = np.maximum(centre - reach, 0)
    high = np.minimum(centre + reach + 1, len(values))
    return [float(mean) for mean in (sums[high] - sums[low]) / (high - low)]


def _style(theme: Theme) -> dict[str, Any]:
    ink, paper = _INK[theme], _PAPER[theme]
    return {
        "font.size": 8.5,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.18,
        "grid.color": ink,
        "figure.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.facecolor": paper,
        "legend.facecolor": paper,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
    }
