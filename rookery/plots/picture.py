"""Draws the curves of one or more runs as a picture with several panels.

Measured values are drawn in a light colour, smoothed ones in full colour. With one run, each statistic has a
colour. With several, each run has a colour, and a band shows the range over the seeds of a configuration.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rookery.errors import InvalidInput
from rookery.plots.panels import OVERVIEW, STRENGTH, Panel, choose, label_of
from rookery.plots.steps import PREFIX, Step, keys_of, series, smooth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Theme: TypeAlias = Literal["light", "dark"]

COLOURS: dict[Theme, tuple[str, ...]] = {
    "light": ("#2563a8", "#c2571a", "#2e7d4f", "#8a4fb0", "#b08900", "#0f8b8d", "#b3355a", "#5b6470"),
    "dark": ("#7ab3ef", "#f0a268", "#7fcf9f", "#c79be8", "#e3c35c", "#6fd0d2", "#ee86a5", "#aab3bf"),
}
"""Colours of the curves. The first few can be distinguished by people with red-green colour blindness."""

LINES = ("-", "--", ":", "-.")
"""Line styles of the statistics in a panel with several runs, where the colour identifies the run."""

_INK: dict[Theme, str] = {"light": "#24292f", "dark": "#d7dce2"}
_PAPER: dict[Theme, str] = {"light": "#ffffff", "dark": "#16191d"}

FORMATS = ("png", "svg", "pdf")

_MOST_COLUMNS = 4

_LEGEND_ROWS = 4
"""A legend with more entries has columns, and room above the curves, unless the panel's range is fixed."""

_SHORT = 7
"""Characters of a label that fits into a column of three."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve with its label: one run, or the runs of one configuration with different seeds."""

    label: str
    runs: tuple[Sequence[Step], ...]


@dataclass(frozen=True, slots=True)
class _Line:
    key: str
    colour: str
    line: str
    label: str | None


def overview(steps: Sequence[Step], strength: Sequence[Step] = (), *, theme: Theme = "light") -> bytes:
    """The learning curve of one run (the panels in `OVERVIEW`), as PNG. `strength` has its evaluated
    versions, which get panels of their own. Raises `InvalidInput` if no step has any of the statistics."""
    panels = choose(keys_of(steps), panels=OVERVIEW)
    panels += choose(keys_of(strength), panels=STRENGTH) if strength else []
    return draw([Curve("", ([*steps, *strength],))], panels, theme=theme)


def draw(
    curves: Sequence[Curve], panels: Sequence[Panel], *, theme: Theme = "light", kind: str = "png"
) -> bytes:
    """Draws the picture and returns its bytes. `kind` is one of `FORMATS`. Raises `InvalidInput` if the
    format is unknown."""
    if kind not in FORMATS:
        raise InvalidInput(f"no picture format {kind!r}: choose from {', '.join(FORMATS)}")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = math.ceil(len(panels) / _MOST_COLUMNS)
    columns = math.ceil(len(panels) / rows)
    with mpl.rc_context(_style(theme)):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
        figure = Figure(figsize=(max(6.0, 3.0 * columns), 2.35 * rows), layout=layout)
        FigureCanvasAgg(figure)
        for index, panel in enumerate(panels):
            _draw_panel(figure.add_subplot(rows, columns, index + 1), panel, curves, theme=theme)
        if len(curves) > 1:
            _draw_legend(figure, curves, theme=theme)
        buffer = io.BytesIO()
        metadata = {"png": {"Software": "rookery"}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(buffer, format=kind, dpi=140, metadata=metadata[kind])
    return buffer.getvalue()


def _draw_panel(axes: "Axes", panel: Panel, curves: Sequence[Curve], *, theme: Theme) -> None:
    colours = COLOURS[theme]
    for place, curve in enumerate(curves):
        for index, key in enumerate(panel.keys):
            alone = len(curves) == 1
            colour = colours[(index if alone else place) % len(colours)]
            several = len(panel.keys) > 1 or (alone and panel.references)
            label = label_of(key) if several and place == 0 else None
            line = "-" if alone else LINES[index % len(LINES)]
            _draw_curve(axes, curve, _Line(key, colour, line, label=label))
    for key, colour in zip(panel.references, cycle(colours), strict=False) if len(curves) == 1 else ():
        numbers, values = series(curves[0].runs[0], key)
        label = label_of(key) if len(panel.references) == 1 else None
        axes.plot(numbers, smooth(values), color=colour, linestyle=":", linewidth=1.2, label=label)
    axes.set_title(panel.title)
    axes.set_xlabel("version" if panel.keys[0].startswith(PREFIX) else "step")
    axes.margins(x=0.01)
    axes.set_ylim(bottom=panel.low, top=panel.high)
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) > _LEGEND_ROWS and panel.high is None:
        columns = 3 if max(map(len, labels)) <= _SHORT else 2
        low, high = axes.get_ylim()
        axes.set_ylim(top=high + 0.13 * math.ceil(len(labels) / columns) * (high - low))
        axes.legend(loc="upper center", ncols=columns, columnspacing=1.0, handlelength=1.2)
    elif labels:
        axes.legend()


def _draw_estimates(axes: "Axes", steps: Sequence[Step], line: _Line) -> None:
    """Estimates with their intervals, not smoothed. A triangle is a bound without an estimate."""
    numbers, values = series(steps, line.key)
    low, high = (dict(zip(*series(steps, f"{line.key}_{end}"), strict=True)) for end in ("low", "high"))
    both = sorted(low.keys() & high.keys())
    axes.vlines(both, [low[n] for n in both], [high[n] for n in both], color=line.colour, alpha=0.5)
    axes.plot(numbers, values, color=line.colour, marker="o", markersize=3, label=line.label)
    for marker, bounds in (("^", low), ("v", high)):
        alone = sorted(bounds.keys() - set(numbers))
        axes.plot(alone, [bounds[n] for n in alone], marker, color=line.colour, markersize=5)


def _draw_curve(axes: "Axes", curve: Curve, line: _Line) -> None:
    if line.key.startswith(PREFIX):
        _draw_estimates(axes, curve.runs[0], line)
        return
    measured = [series(steps, line.key) for steps in curve.runs]
    measured = [(numbers, values) for numbers, values in measured if numbers]
    if not measured:
        return
    for numbers, values in measured:
        axes.plot(numbers, values, color=line.colour, alpha=0.3 / len(measured), linewidth=0.8)
    smoothed = [(numbers, smooth(values)) for numbers, values in measured]
    numbers, middle, low, high = _mean_and_range(smoothed)
    axes.plot(numbers, middle, color=line.colour, linestyle=line.line, linewidth=1.8, label=line.label)
    if len(measured) > 1:
        axes.fill_between(numbers, low, high, color=line.colour, alpha=0.15, linewidth=0)


def _mean_and_range(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[list[float], list[float], list[float], list[float]]:
    """The step numbers that all curves have, and the mean, minimum and maximum of the curves at each.

    >>> _mean_and_range([([1, 2, 3], [0.0, 2.0, 4.0]), ([2, 3], [4.0, 4.0])])
    ([2, 3], [3.0, 4.0], [2.0, 4.0], [4.0, 4.0])
    """
    tables = [dict(zip(numbers, values, strict=True)) for numbers, values in curves]
    shared = sorted(set(tables[0]).intersection(*tables[1:]))
    columns = [[table[number] for table in tables] for number in shared]
    middle = [math.fsum(column) / len(column) for column in columns]
    return shared, middle, [min(column) for column in columns], [max(column) for column in columns]


def _draw_legend(figure: "Figure", curves: Sequence[Curve], *, theme: Theme) -> None:
    from matplotlib.lines import Line2D

    colours = COLOURS[theme]
    handles = [
        Line2D([], [], color=colours[place % len(colours)], linewidth=2.5, label=curve.label)
        for place, curve in enumerate(curves)
    ]
    columns = min(len(handles), _MOST_COLUMNS)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False)


def _style(theme: Theme) -> dict[str, Any]:
    """The matplotlib settings (rcParams) of a theme."""
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
        "legend.edgecolor": "none",
        "legend.framealpha": 0.85,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "svg.hashsalt": "rookery",
    }
