"""`python -m bench.scale.predictions`: what `rookery plan` predicts of runs on this machine, beside the runs.

Two runs, one with twice the groups of the other, give the points: what their services used of the processor
for a step, and for a completion. With them, the other runs are predicted: with the cores that the first one
got, and, since other work takes some away, with their own. Prints a line for each of these,
and writes report.json.
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

FIRST, CALIBRATING = "first", 2
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "twice the groups": {"batch_groups": 16},
    "twice the completions": {"group_size": 16},
    "half the tokens": {"tokens": 16},
    "ten times the nodes": {"nodes": 10_000},
}


def points(work: Workload, one: Ours, two: Ours, prompt_tokens: float) -> dict[str, float]:
    """The points of `rookery plan`, each for one core, from two runs. The second has twice the groups."""
    per_step, per_sample = {}, {}
    for name in one.cpu_cores:
        small, large = (run.cpu_cores[name] * run.step_s for run in (one, two))
        per_sample[name] = max(large - small, 1e-3 * small) / work.samples
        per_step[name] = max(0.0, small - per_sample[name] * work.samples)
    rest = one.cpu_cores.keys() - {"inference", "trainer", "reward"}
    searches = (work.group_size + 1) / work.group_size
    return {
        "cores": sum(one.cpu_cores.values()),
        "prompt_tokens": prompt_tokens,
        "generation_tokens_per_s": work.tokens / per_sample["inference"],
        "iteration_ms": 1e3 * per_step["inference"] / work.tokens,
        "training_tokens_per_s": (work.tokens + prompt_tokens / work.group_size) / per_sample["trainer"],
        "overhead_s": per_step["trainer"],
        "engine_nodes_per_s": one.samples_per_s * searches * work.nodes / one.cpu_cores["reward"],
        "handling_ms": 1e3 * sum(one.cpu_cores[name] for name in rest) / one.samples_per_s,
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
    shapes = {FIRST: first} | {name: replace(first, **changed) for name, changed in OTHERS.items()}
    report: dict[str, Any] = {"load_before": os.getloadavg(), "cores": os.cpu_count(), "runs": {}}
    runs: dict[str, Ours] = {}
    for name, work in shapes.items():
        runs[name] = found = run_ours(work, folder, name.replace(" ", "-"), just_in_time=True)
        if len(runs) == CALIBRATING:
            prompt_tokens = read_metrics(folder / FIRST / METRICS_FILE)[-1]["prompt_length"]
            report["points"] = points(first, runs[FIRST], found, prompt_tokens)
        if len(runs) <= CALIBRATING:
            continue
        got = sum(found.cpu_cores.values())
        said = {
            "with the first run's cores": predicted(work, report["points"]),
            "with its own": predicted(work, {**report["points"], "cores": got}),
        }
        errors = {by: float(of["samples/s"]) / found.samples_per_s - 1 for by, of in said.items()}
        predictions = ", ".join(f"{error:+.0%} {by}" for by, error in errors.items())
        print(
            f"{name}: {found.samples_per_s:.1f} samples/s, {got:.2f} cores; error {predictions}", flush=True
        )
        report["runs"][name] = {"measured": asdict(found), "predicted": said, "load": os.getloadavg()}
        (folder / "report.json").write_text(json.dumps(report, indent=2, default=str))


if __name__ == "__main__":
    main()
