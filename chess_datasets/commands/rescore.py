"""`rookery rescore ARCHIVE --scheme NAME`: compares rewards and advantages under two schemes.

The result is printed as tables or JSON.
"""

import argparse
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

from chess_datasets.commands.engines import add_reward, scorer_of
from chess_datasets.commands.flags import command_parser, positive
from chess_datasets.jobs import Progress
from chess_datasets.store.folders import open_file, open_folder
from chess_datasets.store.parquet import record_writer
from chess_datasets.traces.archive import TraceArchive
from chess_datasets.traces.rescore import RESCORED, SchemeComparison, rescore
from rookery.errors import SetupError
from rookery.terminal import SafeConsole
from rookery.trace import TraceGroup

_NODES = re.compile(r"/nodes-(\d+)/")

EXAMPLES = """  rookery rescore runs/archive --scheme best
  rookery rescore s3://bucket/archive --run r1 --scheme accuracy --json
  rookery rescore runs/archive --scheme minmax --reward dns:///reward:50051 --out minmax.parquet
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    options = _parser().parse_args(argv)
    comparison = asyncio.run(_run(options))
    if options.json:
        sys.stdout.write(json.dumps(comparison.summary(), indent=2) + "\n")
    else:
        _show(comparison.summary(), SafeConsole())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "rescore",
        "Scores every answer of an archive again under another scheme, and shows how rewards and\n"
        "advantages would change. An archive is a folder that `rookery serve archive` writes.",
        examples=EXAMPLES,
    )
    parser.prog = "rookery rescore"
    parser.add_argument("archive", help="folder or URL of the archive")
    parser.add_argument(
        "--scheme", required=True, help="name of the other scheme, as the reward service knows it"
    )
    parser.add_argument("--run", help="only groups of this run (all)")
    parser.add_argument("--limit", type=positive, help="the most groups to score (all)")
    parser.add_argument(
        "--task", default="", help="task of the reward service (default: the task of each group)"
    )
    add_reward(parser)
    parser.add_argument(
        "--nodes", type=positive, help="nodes per search of the service that is started (as in the archive)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--out", metavar="FILE", help="write every answer with both rewards to this Parquet file"
    )
    return parser


async def _run(options: argparse.Namespace) -> SchemeComparison:
    archive = TraceArchive(open_folder(options.archive))
    total = archive.count(run=options.run)
    if not total:
        raise SetupError(
            f"no groups in {options.archive!r}" + (f" of run {options.run!r}" * bool(options.run))
        )
    groups = islice(archive.groups(run=options.run), options.limit)
    first = next(groups)
    comparison = SchemeComparison()
    with Progress() as progress:
        progress.begin(
            f"rescore by {options.scheme}", unit="groups", total=min(total, options.limit or total)
        )
        async with scorer_of(options, nodes=options.nodes or _nodes_of(first)) as scorer:
            answers = rescore(chain([first], groups), scorer, scheme=options.scheme, task=options.task)
            to_file = record_writer(*open_file(options.out), RESCORED) if options.out else nullcontext()
            with to_file as table:
                async with aclosing(answers):
                    async for group, verdicts in answers:
                        for row in comparison.add(group, verdicts):
                            if table:
                                table.add(row)
                        progress.advance(1)
    return comparison


def _nodes_of(group: TraceGroup) -> int:
    """Nodes per search in the archive, so that only the scheme differs; 1000 if the version does not say."""
    match = _NODES.search(group.traces[0].verdict.reward_version)
    return int(match[1]) if match else 1000


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
