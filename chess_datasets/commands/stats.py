"""`rookery data stats`: counts games or positions, as tables or JSON."""

import json
import sys
from collections import Counter
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from chess_datasets.commands.settings.games import StatsSettings
from chess_datasets.jobs import Progress
from chess_datasets.pgn.reader import handle_file
from chess_datasets.pgn.sources import find_sources
from chess_datasets.positions.dataset import read_positions
from chess_datasets.positions.statistics import GameCounter, Statistics, count_positions
from chess_datasets.store.files import STANDARD_INPUT
from chess_datasets.store.folders import open_file
from chess_datasets.store.formats import Format, format_of
from rookery.errors import InvalidInput
from rookery.fen import FenReport
from rookery.masking import mask_setting, printable
from rookery.processes.workers import Workers
from rookery.terminal import SafeConsole

_SHOWN = 20
"""The most rows of a table; the remaining ones are summed up in one row."""


def stats(settings: StatsSettings) -> int:
    """Runs the command and returns the exit status."""
    statistics = Statistics()
    with Progress() as progress, Workers(settings.jobs) as workers:
        for place in find_sources(settings.files):
            statistics.merge(_count(place, settings.replay, workers, progress))
    if settings.json_:
        sys.stdout.write(json.dumps(statistics.summary(), indent=2) + "\n")
    else:
        _show(statistics.summary(), SafeConsole())
    return 0


def _count(place: str, replay: float, workers: Workers, progress: Progress) -> Statistics:
    folder, name = open_file(place)
    form = Format.PGN if place == STANDARD_INPUT else format_of(folder, name)
    if form in (Format.PARQUET, Format.JSONL):
        progress.begin(f"count {name}", unit="positions")
        report = FenReport()
        positions = read_positions(folder, name, report, chess960=True)
        statistics = count_positions(positions, advance=progress.advance)
        if report.skipped_count and not statistics.positions:
            raise InvalidInput(f"no position in {place!r}: {report.reasons}")
        sys.stderr.writelines(printable(f"{line}\n") for line in report.lines(str(mask_setting(place))))
        statistics.by |= {"dropped": report.dropped} if report.dropped else {}
        statistics.by |= {"left_out": Counter(rows=report.skipped_count)} if report.skipped_count else {}
        return statistics
    statistics = Statistics()
    progress.begin(f"count {name}", unit="games")
    for portion in handle_file(place, GameCounter(place, replay), workers):
        progress.advance(portion.games)
        statistics.merge(portion)
    return statistics


def _show(summary: dict[str, Any], console: Console) -> None:
    for name in ("games", "replayed", "positions"):
        if summary[name]:
            console.print(f"{summary[name]:,} {name}", highlight=False)
    duplicates = summary["duplicates"]
    about = "" if duplicates["exact"] else "about "
    console.print(
        f"{about}{duplicates['distinct']:,} different, {duplicates['copies']:,} copies", highlight=False
    )
    for name, counts in summary.items():
        if isinstance(counts, dict) and name != "duplicates":
            console.print(_table(name.replace("_", " "), counts))


def _table(name: str, counts: dict[str, int]) -> Table:
    total, most = sum(counts.values()), max(counts.values(), default=1)
    rows = list(counts.items())
    if len(rows) > _SHOWN:
        rows = [*rows[: _SHOWN - 1], ("others", sum(count for _, count in rows[_SHOWN - 1 :]))]
    table = Table(title=f"\n{name}", title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=14)
    table.add_column(justify="right")
    table.add_column(justify="right")
    for label, count in rows:
        table.add_row(label, f"{count:,}", f"{count / total:.1%}", Bar(most, 0, count, width=24))
    return table
