"""`python -m tests.chaos`: makes faults on a run of real processes, and reports what became of it.

The seed and the commit reproduce a case. The exit status is 1 if something was lost or doubled, or a
fault did not strike. A run that does not go on ends with a traceback.

`--soak` disturbs one run for long. It says nothing of its own about growth: `--report` makes a table of what
it has written so far, also while it runs or after it was killed.
"""

import argparse
import json
import logging
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from services.trainer.tiny import build_tiny
from tests.chaos import games, histories, soak
from tests.chaos.cluster import BATCH, Cluster, group_of
from tests.chaos.disturbed import FAKETIME, NotRecoveredError
from tests.chaos.faults import IN_ORDER, LOSSES, Row, adapter, never_reached, strike
from tests.chaos.whole import WHOLE, Whole
from tests.integration.trainer.runs import Run, events

STEPS = 4
"""Steps of the run during each fault."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: a random one")
    parser.add_argument(
        "--faults",
        nargs="+",
        metavar="FAULT",
        choices=[*IN_ORDER, *LOSSES, *games.NAMES, *WHOLE],
        help="some faults, by their names in the report (all)",
    )
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="disturb one run so long")
    parser.add_argument("--folder", type=Path, help="of the soak's run: one that is there goes on")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="print what a soak has seen so far")
    parser.add_argument("--lasts-s", type=float, default=60.0, help="how long a pause or a cut lasts (60)")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends what it has started
    console = Console(width=120)
    if options.report:
        rows = [json.loads(line) for line in (options.report / soak.ROWS).read_text().splitlines()]
        console.print(*soak.tables(rows))
        return 0
    console.print(f"seed {options.seed}{'' if FAKETIME else '; without libfaketime, no clock jumps'}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if options.soak:
            soak.soak(folder, seed=options.seed, minutes=options.soak)
            return main(["--report", str(folder)])
        rows = []
        for row in run(folder, seed=options.seed, names=options.faults, lasts_s=options.lasts_s):
            console.print(
                f"{row.fault}: recovered in {row.recovered_s:.1f} s, {row.lost} lost, {row.doubled} doubled"
            )
            rows.append(row)
    console.print(table(rows))
    if never := [row.fault for row in rows if not row.injections]:
        console.print(f"never injected: {', '.join(never)}")
    return int(any(row.lost or row.doubled or not row.injections for row in rows))


def run(folder: Path, *, seed: int, names: list[str] | None = None, lasts_s: float) -> Iterator[Row]:
    """Makes the faults one by one, and yields a row for each.

    Raises:
        NotRecoveredError: the run did not go on, an account does not hold, a failpoint was never passed, or
            the adapter differs from that of a run without faults.
    """
    every = (*IN_ORDER, *LOSSES, *games.NAMES, *WHOLE)
    chosen = [name for name in every if names is None or name in names]
    if not {*WHOLE, *games.NAMES} >= set(chosen):
        yield from _run_cluster(folder, chosen, seed=seed, lasts_s=lasts_s)
    if of_games := [name for name in chosen if name in games.NAMES]:
        yield from games.run(folder / "games", of_games, seed=seed)
    if any(name in WHOLE for name in chosen):
        with Whole(folder / "whole", seed=seed) as whole:
            for name in chosen:
                if name in WHOLE:
                    yield strike(whole, name, WHOLE[name], steps=whole.steps + STEPS, lasts_s=lasts_s)
            whole.stop()
            if lost := whole.lost_positions():
                raise NotRecoveredError(f"{lost} positions were fed and have no outcome")


def _run_cluster(folder: Path, chosen: list[str], *, seed: int, lasts_s: float) -> Iterator[Row]:
    model = build_tiny(folder / "model", seed=3, layers=2)
    in_order = [name for name in chosen if name in IN_ORDER]
    with Cluster(folder, model, seed=seed) as cluster:
        cluster.random.shuffle(in_order)
        cluster.ensure()
        done = advance(cluster, STEPS)  # a run that has published nothing would take any trainer
        for name in in_order:
            yield strike(cluster, name, IN_ORDER[name], steps=(done := done + STEPS), lasts_s=lasts_s)
        compare(cluster, folder, model, steps=done)
        check_history(cluster, forgetful=False)
        for name in chosen:
            if name in LOSSES:
                yield strike(cluster, name, LOSSES[name], steps=(done := done + STEPS), lasts_s=lasts_s)
        check_history(cluster, forgetful=True)
        if missing := never_reached(cluster):
            raise NotRecoveredError(f"failpoints that were never passed: {', '.join(sorted(missing))}")


def advance(cluster: Cluster, steps: int) -> int:
    """Lets the run go on undisturbed to `steps` steps, and returns them."""
    cluster.allow(steps)
    cluster.settle(steps)
    return steps


def check_history(cluster: Cluster, *, forgetful: bool) -> None:
    """Checks the calls of all processes so far."""
    if wrong := histories.violations(histories.read(cluster.history), forgetful=forgetful):
        raise NotRecoveredError("\n".join(wrong))


def compare(cluster: Cluster, folder: Path, model: Path, *, steps: int) -> None:
    """Compares the adapter with that of a trainer which nothing disturbs."""
    with events() as running:
        other = Run(cluster.url, "undisturbed", folder / "undisturbed", model, running)
        other.add([group_of(number) for number in range(steps * BATCH)])
        other.train(steps, max_staleness=100_000)
    if adapter(other.folder, steps) != adapter(cluster.run_dir, steps):
        raise NotRecoveredError(f"the adapter of step {steps} differs from that of a run without faults")


def table(rows: list[Row]) -> Table:
    """The report."""
    report = Table("fault", "injections", "recovered in, s", "lost", "doubled", box=None)
    for row in rows:
        report.add_row(
            row.fault, *map(str, (row.injections, f"{row.recovered_s:.1f}", row.lost, row.doubled))
        )
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
