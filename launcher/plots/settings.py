"""What `rookery plot` and `rookery compare` may be told."""

from pathlib import Path

from pydantic import Field, NonNegativeInt
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery.plots.style import Theme
from rookery.settings import Settings


class PlotSettings(Settings):
    """Draw the curves of one run, or of several over each other, from their metrics.jsonl."""

    model_config = SettingsConfigDict(env_prefix="PLOT_")

    runs: CliPositionalArg[list[str]] = Field(min_length=1)
    """Names of runs, or their folders; a folder of runs stands for all of them."""
    out: Path | None = None
    """Picture to write: .png, .svg or .pdf. Default: curves.png, in the run's folder if there is one run."""
    keys: tuple[str, ...] = ()
    """Statistics to draw, repeatable, as in reward and kl_*. Default: all that there is a panel for."""
    runs_dir: Path = Path("runs")
    """Where runs are looked up by name."""
    theme: Theme = "light"
    """Colour of the paper."""


class CompareSettings(Settings):
    """Lay runs over each other and compare their last steps with those of the first.

    Runs that differ in nothing but their seed count as one configuration.
    """

    model_config = SettingsConfigDict(env_prefix="COMPARE_")

    runs: CliPositionalArg[list[str]] = Field(min_length=1)
    """Names of runs, or their folders; a folder of runs stands for all of them."""
    out: Path | None = None
    """Picture to write: .png, .svg or .pdf. Default: none."""
    keys: tuple[str, ...] = ()
    """Statistics to compare, repeatable, `*` for any letters. Default: the usual ones."""
    window: float = Field(default=0.2, gt=0, le=1)
    """Share of each run's steps, at its end, over which means are taken."""
    separate: bool = False
    """Compare every run by itself, whatever its settings."""
    json_: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""
    seed: NonNegativeInt = 0
    """Of the resampling."""
    runs_dir: Path = Path("runs")
    """Where runs are looked up by name."""
    theme: Theme = "light"
    """Colour of the paper."""
