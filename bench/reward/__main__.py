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
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.reward import report
from bench.reward.agreement import agreement_tables, run_agreement
from bench.reward.cached import Cached, run_cached
from bench.reward.memory import REMEMBERED, run_memory
from bench.reward.outcome import Case, Outcome
from bench.reward.target import targets
from bench.reward.throughput import BATCH_ROUTES, REPEATS, SINGLE_ROUTES, WARM_QUESTIONS, Effort, run_case
from bench.reward.workload import KINDS, Workload, positions
from rookery.engines import find_engine
from services.reward.settings import RewardSettings

SECTIONS = ("throughput", "growth", "latency", "cached", "memory")
AGREEMENT = "agreement"
"""A section of its own: it needs a table of action values."""

MAX_POSITIONS = 60_000
MIN_POSITIONS = 1000 + REMEMBERED
SEARCHES_PER_S = 800
"""Of a core at 1,000 nodes: decides how many positions are made ready."""

CACHED_POSITIONS = (1000, 5000)
"""Fewer and more than the service keeps boards of."""

SOURCE = Path("samples/lichess.pgn.zst")
WIDTH = 120
"""Of tables in a file."""


def main() -> int:
    options = _arguments()
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
    bench = _Bench(options, console)
    for section in options.sections:
        getattr(bench, section)()
    bench.finish()
    return 0


class _Bench:
    """One run: the sections add to what `finish` reports."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self._options = options
        self._console = console
        self._engine = find_engine(options.engine_path, setting="--engine-path")
        self._most = max(options.engines)
        self._effort = Effort(
            options.rounds, options.seconds, options.batch, options.in_flight, options.callers
        )
        self._workloads: dict[str, Workload] = {}
        if set(options.sections) != {AGREEMENT}:
            with console.status("positions"):
                self._workloads = _workloads(options)
        self._outcomes: list[Outcome] = []
        self._cached: list[Cached] = []
        self._document: dict[str, Any] = {"machine": report.machine()}

    def throughput(self) -> None:
        """All routes with all the engines."""
        options = self._options
        for kind in options.workloads:
            for nodes in options.nodes:
                case = Case(kind, nodes, self._most, tuple(options.routes))
                outcome = self._run(case, peer=not options.no_peer)
                self._console.print(report.throughput_table(outcome))

    def growth(self) -> None:
        """One route with fewer engines."""
        known = {
            (o.case.kind, o.case.nodes, o.case.engines) for o in self._outcomes if "grpc" in o.case.routes
        }
        for nodes in self._options.nodes:
            for engines in self._options.engines:
                if ("distinct", nodes, engines) not in known:
                    self._run(Case("distinct", nodes, engines, ("grpc",)), peer=False)
        self._console.print(report.growth_table(self._outcomes))

    def latency(self) -> None:
        """Single answers, at the fewest nodes, where Python weighs most."""
        case = Case("distinct", min(self._options.nodes), self._most, SINGLE_ROUTES)
        outcome = self._run(case, peer=False)
        self._console.print(report.latency_table(outcome, callers=self._effort.callers))

    def cached(self) -> None:
        """The same items again."""
        for kind in self._options.workloads:
            for count in CACHED_POSITIONS:
                with self._console.status(f"cached, {kind}, {count} positions"):
                    self._cached += run_cached(
                        self._workloads[kind], self._effort, positions=count, engines=self._most
                    )
        self._document["cached"] = [asdict(row) for row in self._cached]
        self._console.print(report.cached_table(self._cached))

    def memory(self) -> None:
        """Of process, engines and items."""
        with self._console.status("memory"):
            memory = run_memory(self._workloads["distinct"], engines=self._most)
        self._document["memory"] = asdict(memory)
        self._console.print(report.memory_table(memory))

    def agreement(self) -> None:
        """Our rewards beside those of a table of action values."""
        options = self._options
        rows = []
        for nodes in options.nodes:
            with self._console.status(f"agreement, {nodes} nodes"):
                rows.append(
                    run_agreement(
                        options.reference, positions=options.positions, nodes=nodes, engine=self._engine
                    )
                )
        self._document["agreement"] = [asdict(row) for row in rows]
        for table in agreement_tables(rows):
            self._console.print(table)

    def finish(self) -> None:
        """Targets, and the file."""
        found = targets(self._outcomes, self._cached)
        report.show_targets(self._console, found)
        if self._options.json:
            self._document["throughput"] = [report.outcome_json(outcome) for outcome in self._outcomes]
            self._document["targets"] = [{**asdict(target), "met": target.met} for target in found]
            self._options.json.write_text(json.dumps(self._document, indent=2) + "\n")

    def _run(self, case: Case, *, peer: bool) -> Outcome:
        with self._console.status(f"{case}"):
            outcome = run_case(case, self._effort, self._workloads[case.kind], self._engine, peer=peer)
        self._outcomes.append(outcome)
        return outcome


def _arguments() -> argparse.Namespace:
    cores = RewardSettings().engines
    parser = argparse.ArgumentParser(
        prog="python -m bench.reward",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--sections",
        nargs="+",
        choices=(*SECTIONS, AGREEMENT),
        default=SECTIONS,
        help=f"what to measure; default: all but {AGREEMENT}, which needs --reference",
    )
    add("--reference", type=Path, metavar="CSV", help="action values: FEN, Move, Win Probability")
    add("--positions", type=int, default=500, help="of the reference")
    add("--nodes", nargs="+", type=int, default=[1_000, 10_000], help="nodes of a search")
    add("--engines", nargs="+", type=int, default=list(range(1, cores + 1)), help="default: 1 to the cores")
    add("--workloads", nargs="+", choices=KINDS, default=KINDS, help="one answer a position, or eight")
    add("--routes", nargs="+", choices=BATCH_ROUTES, default=BATCH_ROUTES, help="ways into the service")
    add("--rounds", type=int, default=5, help="calm ones wanted; each measures every side once")
    add("--seconds", type=float, default=3.0, help="of a side in a round, at the speed of the limit")
    add("--batch", type=int, default=64, help="answers in a batch")
    add("--in-flight", type=int, default=8, help="batches at a time")
    add("--callers", type=int, default=64, help="who wait at a time, for the latency")
    add("--reasoning-chars", type=int, default=1000, help="of thought before an answer")
    add("--no-peer", action="store_true", help="leave out python-chess")
    add("--engine-path", type=Path, help="the Stockfish binary")
    add("--source", type=Path, default=SOURCE, help="games to take positions from")
    add("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if AGREEMENT in options.sections and options.reference is None:
        parser.error(f"--sections {AGREEMENT} needs --reference, a table of action values")
    return options


def _workloads(options: argparse.Namespace) -> dict[str, Workload]:
    """Enough positions for rounds of the wanted length; a few of them warm everything up."""
    rate = SEARCHES_PER_S * 1000 / min(options.nodes) / 2 * max(options.engines)
    wanted = int(rate * options.seconds * options.rounds * REPEATS) + WARM_QUESTIONS
    count = min(MAX_POSITIONS, max(MIN_POSITIONS, wanted))
    fens = positions(options.source, count)
    kinds = dict.fromkeys((*options.workloads, "distinct"))
    return {kind: Workload(fens, kind, options.reasoning_chars) for kind in kinds}


if __name__ == "__main__":
    sys.exit(main())
