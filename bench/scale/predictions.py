"""`python -m bench.scale.predictions`: what `rookery plan` predicts of runs on this machine, beside the runs.

The first run gives the points: what its services used of the processor, and its metrics. With them, the other
runs are predicted, and then measured. Each differs from the first in one respect. Prints a table, and writes
report.json.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.loop.ours import Ours, run_ours
from bench.loop.workload import Workload, endless_model
from launcher.capacity import CapacitySettings, predict
from rookery.plots.steps import METRICS_FILE, read_metrics

OTHERS: Mapping[str, Mapping[str, int]] = {
    "twice the groups": {"batch_groups": 16},
    "twice the completions": {"group_size": 16},
    "half the tokens": {"tokens": 16},
    "ten times the nodes": {"nodes": 10_000},
}


def points(work: Workload, found: Ours, run: Path) -> dict[str, Any]:
    """The points of `rookery plan` that the first run measured, each for one core."""
    samples, cores = found.samples_per_s, found.cpu_cores
    searches = samples * (work.group_size + 1) / work.group_size
    apart = sum(cores.values()) - sum(cores[name] for name in ("inference", "trainer", "reward"))
    return {
        "like": run,
        "generation_tokens_per_s": samples * work.tokens / cores["inference"],
        "engine_nodes_per_s": searches * work.nodes / cores["reward"],
        "handling_ms": 1e3 * apart / samples,
        "prompt_tokens": read_metrics(run / METRICS_FILE)[-1]["prompt_length"],
    }


def predicted(work: Workload, measured: Mapping[str, Any], cores: float) -> dict[str, float | str]:
    """What `rookery plan` says of a run."""
    shape = {name: getattr(work, name) for name in ("batch_groups", "group_size", "tokens", "nodes")}
    return predict(CapacitySettings(gpus=0, cores=cores, **shape, **measured))


def main() -> None:
    """Measures, predicts and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.predictions", description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/rook-tiny"))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-predictions"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=args.out)).resolve()
    first = Workload(
        model=endless_model(args.model, folder / "model"),
        source=Path("samples/lichess.pgn.zst").resolve(),
        steps=args.steps,
        warmup_steps=6,
        nodes=1000,
    )
    shapes = {"points": first} | {name: replace(first, **changed) for name, changed in OTHERS.items()}
    table = Table("run", "measured, samples/s", "predicted", "error", "limited by")
    report: dict[str, Any] = {"load_before": os.getloadavg(), "cores": os.cpu_count(), "runs": {}}
    known: dict[str, Any] = {}
    cores = 0.0
    for name, work in shapes.items():
        found = run_ours(work, folder, name.replace(" ", "-"), just_in_time=True)
        if not known:
            known, cores = points(work, found, folder / name), sum(found.cpu_cores.values())
        said = predicted(work, known, cores)
        error = float(said["samples/s"]) / found.samples_per_s - 1
        row = (f"{found.samples_per_s:.1f}", f"{said['samples/s']:.1f}", f"{error:+.0%}")
        table.add_row(name, *row, str(said["limited by"]))
        report["runs"][name] = {"measured": asdict(found), "predicted": said}
    Console().print(table)
    report |= {"points": known, "load_after": os.getloadavg()}
    (folder / "report.json").write_text(json.dumps(report, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
