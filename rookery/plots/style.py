"""The style of the pictures, for a light and a dark background."""

from typing import Any, Literal, TypeAlias

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


def style(theme: Theme) -> dict[str, Any]:
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
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "svg.hashsalt": "rookery",
    }
