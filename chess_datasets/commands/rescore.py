"""`rookery rescore ARCHIVE --scheme NAME`: compares rewards and advantages under two schemes.

The result is printed as tables or JSON.
"""

import asyncio
import json
import re
import sys
from contextlib import aclosing, nullcontext
from itertools import chain, islice
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from chess_datasets.commands.engines import scorer_of
from chess_datasets.commands.settings.archives import RescoreSettings
from chess_datasets.jobs import Progress
from chess_datasets.store.folders import open_file, open_folder
from chess_datasets.store.parquet import record_writer
from chess_datasets.traces.archive import TraceArchive
from chess_datasets.traces.rescore import RESCORED, SchemeComparison, rescored
from rookery.errors import SetupError
from rookery.terminal import SafeConsole

_NODES = re.compile(r"/nodes-(\d+)/")


def rescore(settings: RescoreSettings) -> int:
    """Runs the command and returns the exit status."""
    comparison = asyncio.run(_run(settings))
    if settings.json_:
        sys.stdout.write(json.dumps(comparison.summary(), indent=2) + "\n")
    else:
        _show(comparison.summary(), SafeConsole())
    return 0


async def _run(settings: RescoreSettings) -> SchemeComparison:
    archive = TraceArchive(open_folder(settings.archive))
    total = archive.count(run=settings.run)
    if not total:
        raise SetupError(
            f"no groups in {settings.archive!r}" + (f" of run {settings.run!r}" * bool(settings.run))
        )
    groups = islice(archive.groups(run=settings.run), settings.limit)
    first = next(groups)
    # Searches as in the archive, so that only the scheme differs; 1000 nodes if the version does not say.
    match = _NODES.search(first.traces[0].verdict.reward_version)
    nodes = settings.nodes or (int(match[1]) if match else 1000)
    comparison = SchemeComparison()
    with Progress() as progress:
        progress.begin(
            f"rescore by {settings.scheme}", unit="groups", total=min(total, settings.limit or total)
        )
        async with scorer_of(settings, nodes=nodes) as scorer:
            answers = rescored(chain([first], groups), scorer, scheme=settings.scheme, task=settings.task)
            to_file = record_writer(*open_file(settings.out), RESCORED) if settings.out else nullcontext()
            with to_file as table:
                async with aclosing(answers):
                    async for group, verdicts in answers:
                        for row in comparison.add(group, verdicts):
                            if table:
                                table.add(row)
                        progress.advance(1)
    return comparison


def _show(summary: dict[str, Any], console: Console) -> None:
    console.print(f"{summary['groups']:,} groups, {summary['answers']:,} answers", highlight=False)
    for when, versions in summary["reward_versions"].items():
        for version in versions:
            console.print(f"{when:<7} {version}", highlight=False, soft_wrap=True)
    uniform = summary["groups_without_variance"]
    table = _table("What changes", "", "before", "after")
    table.add_row("groups without variance", f"{uniform['before']:,}", f"{uniform['after']:,}")
    table.add_row("correlation of rewards", "", _number(summary["reward_correlation"]))
    table.add_row("correlation of advantages", "", _number(summary["advantage_correlation"]))
    for name, meaning in _SIGNS.items():
        part = summary["advantage_signs"][name]
        table.add_row(f"advantages with {meaning}", "", f"{part:,} ({part / summary['answers']:.1%})")
    means = _table("Mean reward", "outcome", "answers", "before", "after")
    for outcome, mean in summary["mean_reward"].items():
        means.add_row(outcome, f"{mean['answers']:,}", _number(mean["before"]), _number(mean["after"]))
    console.print(table, means, sep="\n")


_SIGNS = {
    "kept": "the same sign",
    "flipped": "the other sign",
    "silenced": "none any more",
    "awakened": "a sign only now",
}


def _table(title: str, *headers: str) -> Table:
    table = Table(*headers, title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}"
