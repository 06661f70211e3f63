"""`python -m bench.reward`: the reward service beside the limit that its engines set.

The limit is the same engines on raw UCI pipes, driven flat out through exactly the searches that the
service makes; python-chess's SimpleEngine, one analysis a question, is the obvious way. All sides
answer the same positions in turn, round by round, and what counts is the ratio in a round. With as
many engines as cores nothing is left for Python: every microsecond of server and client shows, so
their processor time stands beside the ratios. Rounds in which strangers used the machine are repeated
and, where possible, not counted; the ratio "by CPU" does not depend on them.
"""

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.reward.agreement import agreement_tables, run_agreement
from bench.reward.outcome import CALM_CORES, Case, targets
from bench.reward.throughput import REPEATS, ROUTES, WARM_QUESTIONS, Effort, run_case
from bench.reward.workload import KINDS, Workload, positions
from rookery.config.reward import RewardSettings
from rookery.engines import find_engine

SECTIONS = ("throughput", "agreement")

MAX_POSITIONS, MIN_POSITIONS = 60_000, 1000
SEARCHES_PER_S = 800
"""Of a core at 1,000 nodes: decides how many positions are made ready."""

SOURCE = Path("samples/lichess.pgn.zst")
WIDTH = 120
"""Of tables in a file."""


def main() -> int:
    """Measures, prints, and writes the file; 1 when a promise is broken."""
    options = _arguments()
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
    engine = find_engine(options.engine_path, setting="--engine-path")
    machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    document: dict[str, Any] = {"machine": machine | {"calm_cores": CALM_CORES}}
    if "throughput" in options.sections:
        document |= _throughput(options, console, engine)
    if "agreement" in options.sections:
        document["agreement"] = _agreement(options, console, engine)
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(target["met"] for target in document.get("targets", ())) else 1


def _throughput(options: argparse.Namespace, console: Console, engine: Path) -> dict[str, Any]:
    """All routes beside the limit, on enough positions for rounds of the wanted length."""
    rate = SEARCHES_PER_S * 1000 / min(options.nodes) / 2 * options.engines
    wanted = int(rate * options.seconds * options.rounds * REPEATS) + WARM_QUESTIONS
    with console.status("positions"):
        fens = positions(options.source, min(MAX_POSITIONS, max(MIN_POSITIONS, wanted)))
    effort = Effort(options.rounds, options.seconds, options.batch, options.in_flight)
    outcomes = []
    for kind in options.workloads:
        workload = Workload(fens, kind, options.reasoning_chars)
        for nodes in options.nodes:
            case = Case(kind, nodes, options.engines, tuple(options.routes))
            with console.status(f"{case}"):
                outcomes.append(run_case(case, effort, workload, engine, peer=not options.no_peer))
            console.print(outcomes[-1].table())
    found = targets(outcomes)
    for target in found:
        verdict = "[green]met   [/]" if target.met else "[red]missed[/]"
        figures = f"{target.measured:.3f}, promised {target.least:.3f}"
        console.print(f"{verdict} {target.name}: {figures} ({target.note})")
    return {
        "throughput": [outcome.json() for outcome in outcomes],
        "targets": [{**asdict(target), "met": target.met} for target in found],
    }


def _agreement(options: argparse.Namespace, console: Console, engine: Path) -> list[dict[str, Any]]:
    """Our rewards beside those of a table of action values."""
    rows = []
    for nodes in options.nodes:
        with console.status(f"agreement, {nodes} nodes"):
            rows.append(
                run_agreement(options.reference, positions=options.positions, nodes=nodes, engine=engine)
            )
    for table in agreement_tables(rows):
        console.print(table)
    return [asdict(row) for row in rows]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reward",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--sections",
        nargs="+",
        choices=SECTIONS,
        default=SECTIONS[:1],
        help="what to measure; default: throughput. agreement needs --reference",
    )
    add("--reference", type=Path, metavar="CSV", help="action values: FEN, Move, Win Probability")
    add("--positions", type=int, default=500, help="of the reference")
    add("--nodes", nargs="+", type=int, default=[1_000, 10_000], help="nodes of a search")
    add("--engines", type=int, default=RewardSettings().engines, help="default: as many as cores")
    add("--workloads", nargs="+", choices=KINDS, default=KINDS, help="one answer a position, or eight")
    add("--routes", nargs="+", choices=ROUTES, default=tuple(ROUTES), help="ways into the service")
    add("--rounds", type=int, default=5, help="calm ones wanted; each measures every side once")
    add("--seconds", type=float, default=3.0, help="of a side in a round, at the speed of the limit")
    add("--batch", type=int, default=64, help="answers in a batch")
    add("--in-flight", type=int, default=8, help="batches at a time")
    add("--reasoning-chars", type=int, default=1000, help="of thought before an answer")
    add("--no-peer", action="store_true", help="leave out python-chess")
    add("--engine-path", type=Path, help="the Stockfish binary")
    add("--source", type=Path, default=SOURCE, help="games to take positions from")
    add("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if "agreement" in options.sections and options.reference is None:
        parser.error("--sections agreement needs --reference, a table of action values")
    return options


if __name__ == "__main__":
    sys.exit(main())
