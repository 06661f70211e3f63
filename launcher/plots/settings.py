"""The settings of `rookery plot` and `rookery compare`."""

from pathlib import Path

from pydantic import Field, NonNegativeInt
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery.plots.picture import Theme
from rookery.settings import Settings


class PlotSettings(Settings):
    """Draw the training curves of one or more runs, from their metrics.jsonl, in one picture."""

    model_config = SettingsConfigDict(env_prefix="PLOT_")

    runs: CliPositionalArg[list[str]] = Field(min_length=1)
    """Names or folders of runs. A folder with several runs stands for all of them."""
    out: Path | None = None
    """Picture to write: .png, .svg or .pdf. Default: curves.png, in the run's folder if there is one run."""
    keys: tuple[str, ...] = ()
    """Statistics to draw, repeatable; for example reward or kl_*. Default: all statistics with a panel."""
    runs_dir: Path = Path("runs")
    """Folder with the runs, for runs given by name."""
    theme: Theme = "light"
    """Colour theme: light or dark background."""


class CompareSettings(Settings):
    """Compare runs: the means of their last steps, and the differences to the first run.

    Runs that differ only in their seed count as one configuration.
    """

    model_config = SettingsConfigDict(env_prefix="COMPARE_")

    runs: CliPositionalArg[list[str]] = Field(min_length=1)
    """Names or folders of runs. A folder with several runs stands for all of them."""
    out: Path | None = None
    """Picture to write: .png, .svg or .pdf. Default: none."""
    keys: tuple[str, ...] = ()
    """Statistics to compare, repeatable; `*` matches any characters. Default: the most common ones."""
    window: float = Field(default=0.2, gt=0, le=1)
    """Share of each run's steps, counted from the end, over which the means are computed."""
    separate: bool = False
    """Compare every run separately, even if runs differ only in their seed."""
    json_: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""
    seed: NonNegativeInt = 0
    """Seed of the resampling."""
    runs_dir: Path = Path("runs")
    """Folder with the runs, for runs given by name."""
    theme: Theme = "light"
    """Colour theme: light or dark background."""
