"""`python -m bench.scale.predictions`: what `rookery plan` predicts of runs on this machine, beside the runs.

The first run gives the points: what its services used of the processor. With them, the other runs are
predicted; each differs from the first in one respect. Prints a line for each run, and writes report.json.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.loop.ours import Ours, run_ours
from bench.loop.workload import Workload, endless_model
from launcher.capacity import CapacitySettings, predict
from rookery.plots.steps import METRICS_FILE, read_metrics

OTHERS: Mapping[str, Mapping[str, Any]] = {
    "twice the groups": {"batch_groups": 16},
    "twice the completions": {"group_size": 16},
    "half the tokens": {"tokens": 16},
    "ten times the nodes": {"nodes": 10_000},
}


def points(work: Workload, found: Ours, prompt_tokens: float) -> dict[str, float]:
    """The points of `rookery plan` that the first run measured, each for one core."""
    samples, cores = found.samples_per_s, found.cpu_cores
    searches = samples * (work.group_size + 1) / work.group_size
    apart = sum(cores.values()) - sum(cores[name] for name in ("inference", "trainer", "reward"))
    return {
        "cores": sum(cores.values()),
        "prompt_tokens": prompt_tokens,
        "generation_tokens_per_s": samples * work.tokens / cores["inference"],
        "training_tokens_per_s": samples * (work.tokens + prompt_tokens / work.group_size) / cores["trainer"],
        "overhead_s": 0.0,  # in what the trainer used
        "engine_nodes_per_s": searches * work.nodes / cores["reward"],
        "handling_ms": 1e3 * apart / samples,
    }


def predicted(work: Workload, measured: Mapping[str, float]) -> dict[str, float | str]:
    """What `rookery plan` says of a run."""
    shape = {name: getattr(work, name) for name in ("batch_groups", "group_size", "tokens", "nodes")}
    settings: dict[str, Any] = {**shape, **measured}
    return predict(CapacitySettings(gpus=0, **settings))


def main() -> None:
    """Measures, predicts and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.predictions", description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/rook-tiny"))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup-steps", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-predictions"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=args.out)).resolve()
    first = Workload(
        model=endless_model(args.model, folder / "model"),
        source=Path("samples/lichess.pgn.zst").resolve(),
        steps=args.steps,
        warmup_steps=args.warmup_steps,
        nodes=1000,
    )
    shapes = {"points": first} | {name: replace(first, **changed) for name, changed in OTHERS.items()}
    report: dict[str, Any] = {"load_before": os.getloadavg(), "cores": os.cpu_count(), "runs": {}}
    known: dict[str, float] = {}
    for name, work in shapes.items():
        found = run_ours(work, folder, name.replace(" ", "-"), just_in_time=True)
        if not known:
            prompt_tokens = read_metrics(folder / name / METRICS_FILE)[-1]["prompt_length"]
            known = points(work, found, prompt_tokens)
        said = predicted(work, known)
        error = float(said["samples/s"]) / found.samples_per_s - 1
        measured = f"{found.samples_per_s:.1f} samples/s with {sum(found.cpu_cores.values()):.2f} cores"
        predicted_text = f"predicted {said['samples/s']:.1f} ({error:+.0%}), limited by {said['limited by']}"
        print(f"{name}: {measured}, {predicted_text}", flush=True)
        report["runs"][name] = {"measured": asdict(found), "predicted": said, "load": os.getloadavg()}
        (folder / "report.json").write_text(json.dumps(report | {"points": known}, indent=2, default=str))


if __name__ == "__main__":
    main()
