"""The commands `rookery plot` and `rookery compare`, with their settings."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, NonNegativeInt
from pydantic_settings import CliPositionalArg
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launcher.plots.comparison import WINDOW, Comparison, Interval, compare
from launcher.plots.runs import Run, find_runs, group_seeds, ungrouped
from rookery.errors import InvalidInput
from rookery.plots import CURVES_FILE
from rookery.plots.panels import choose
from rookery.plots.picture import FORMATS, Curve, Theme, draw
from rookery.plots.steps import keys_of
from rookery.remote import FolderPath, OutputPath, PathOrUrl
from rookery.settings import Settings
from rookery.terminal import SafeConsole


class RunsSettings(Settings):
    """Runs, and a picture of their curves."""

    runs: CliPositionalArg[list[PathOrUrl]] = Field(min_length=1)
    """Runs, by name or folder. A folder with several runs stands for all of them."""
    keys: tuple[str, ...] = ()
    """Statistics, repeatable, as reward or kl_*. Default: all with a panel, or the most common ones."""
    runs_dir: FolderPath = Path("runs")
    """Folder with the runs, for runs given by name."""
    theme: Theme = "light"
    """Colour theme: light or dark background."""


class PlotSettings(RunsSettings, env_prefix="PLOT_"):
    """Draw the training curves of one or more runs, from their metrics.jsonl, in one picture."""

    out: OutputPath | None = None
    """Picture to write: .png, .svg or .pdf. Default: curves.png, in the run's folder if there is one run."""


class CompareSettings(RunsSettings, env_prefix="COMPARE_"):
    """Compare runs: the means of their last steps, and the differences to the first run.

    Runs that differ only in their seed count as one configuration. If all configurations have the same seeds,
    differences are between runs of the same seed. Held-out figures of a demo's report are `evaluation_...`.
    """

    out: OutputPath | None = None
    """Picture to write: .png, .svg or .pdf. Default: none."""
    window: float = Field(default=WINDOW, gt=0, le=1)
    """Share of each run's steps, counted from the end, over which the means are computed."""
    separate: bool = False
    """Compare every run separately, even if runs differ only in their seed."""
    json_: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""
    seed: NonNegativeInt = 0
    """Seed of the resampling."""


def plot(settings: PlotSettings, console: Console | None = None) -> int:
    """Writes the picture and prints its path. Returns the exit status. Raises `RookeryError` if a run cannot
    be read, there is nothing to draw, or the picture format is unknown."""
    console = console or SafeConsole()
    runs = find_runs(settings.runs, runs_dir=settings.runs_dir)
    out = settings.out or (runs[0].folder / CURVES_FILE if len(runs) == 1 else Path(CURVES_FILE))
    curves = [Curve(run.name, (run.steps,)) for run in runs]
    panels = choose(_keys(runs), asked=settings.keys)
    _write(out, draw(curves, panels, theme=settings.theme, kind=_kind(out)))
    steps = max(len(run.steps) for run in runs)
    console.print(f"{out}: {len(panels)} panels, {steps} steps, {len(runs)} run{'s' * (len(runs) > 1)}")
    return 0


def compare_runs(settings: CompareSettings, console: Console | None = None) -> int:
    """Prints a table, or JSON, and writes a picture with --out. Returns the exit status. Raises
    `RookeryError` if a run cannot be read, there is only one configuration, or the runs share no
    statistic."""
    console = console or SafeConsole()
    runs = find_runs(settings.runs, runs_dir=settings.runs_dir)
    configurations = ungrouped(runs) if settings.separate else group_seeds(runs)
    if len(runs) == 1:
        raise InvalidInput(f"run {runs[0].name!r} is the only run: name another to compare it with")
    if len(configurations) == 1 and not settings.separate:
        raise InvalidInput(
            f"{len(runs)} seeds of one configuration: use --separate to compare them with each other"
        )
    comparison = compare(configurations, window=settings.window, keys=settings.keys, seed=settings.seed)
    if settings.out is not None:
        curves = [Curve(c.name, tuple(run.steps for run in c.runs)) for c in configurations]
        panels = choose(_keys(runs), asked=settings.keys)
        _write(settings.out, draw(curves, panels, theme=settings.theme, kind=_kind(settings.out)))
    print_comparison(comparison, console, as_json=settings.json_)
    return 0


def print_comparison(comparison: Comparison, console: Console, *, as_json: bool) -> None:
    """Prints a comparison as a table or as JSON."""
    if as_json:
        console.out(json.dumps(comparison.as_json(), indent=2), highlight=False)
    else:
        console.print(comparison_table(comparison))
        console.print(f"intervals: {comparison.method}", highlight=False)


def comparison_table(comparison: Comparison) -> Table:
    """A row for each statistic of each configuration, with `*` if the difference's interval excludes 0."""
    windows = "-".join(str(n) for n in sorted({min(comparison.window_steps), max(comparison.window_steps)}))
    table = Table(
        title=f"Means of the last {windows} steps, 95% intervals",
        title_justify="left", box=SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    table.add_column("", no_wrap=True)
    table.add_column("")
    for head in ("mean", f"less {comparison.configurations[0]}", ""):
        table.add_column(Text(head), justify="right", no_wrap=True)
    for figure in comparison.figures:
        difference = figure.difference
        table.add_row(
            figure.key if difference is None else "",
            Text(figure.configuration),
            _cell(figure.value),
            "" if difference is None else _cell(difference, signed=True),
            "*"
            if difference is not None
            and difference.low < difference.high
            and not difference.low <= 0 <= difference.high
            else "",
        )
    return table


def number(value: float, *, signed: bool = False) -> str:
    """Four significant digits; no decimals from 1000 on.

    >>> number(0.123456), number(1234.56), number(-0.00001234), number(0.5, signed=True)
    ('0.1235', '1,235', '-1.234e-05', '+0.5')
    """
    sign = "+" if signed else ""
    return f"{value:{sign},.0f}" if abs(value) >= 1000 else f"{value:{sign}.4g}"


def _cell(value: Interval, *, signed: bool = False) -> Text:
    low, high = number(value.low, signed=signed), number(value.high, signed=signed)
    interval = "all equal" if value.low == value.high else f"[{low}, {high}]"
    bounds = interval if math.isfinite(value.high - value.low) else "no interval"
    return Text.assemble(number(value.mean, signed=signed), "\n", (bounds, "dim"))


def _keys(runs: Sequence[Run]) -> list[str]:
    return sorted({key for run in runs for key in keys_of(run.steps)})


def _kind(out: Path) -> str:
    kind = out.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InvalidInput(f"--out {str(out)!r}: it must end in {', '.join('.' + name for name in FORMATS)}")
    return kind


def _write(out: Path, picture: bytes) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(picture)
    except OSError as error:
        raise InvalidInput(f"--out {str(out)!r}: {error}") from error
