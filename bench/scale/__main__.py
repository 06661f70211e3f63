"""`python -m bench.scale`: one worker and two, a pipeline that is up to date, and traces through one Redis.

Prints figures as JSON, and returns 1 if a target is missed. On a machine that has other work to do, only
ratios and processor time mean something.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.scale import traces, workers

PARTS = ("workers", "pipeline", "traces")
UP_TO_DATE_S = 3.0
_STEPS, _MODEL_MB = 6, 350
"""As many steps as in pipelines/pychess.toml; one of them reads a model of the size of distilgpt2."""


def main() -> int:
    """Measures, prints, and returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--annotations", type=int, default=160)
    parser.add_argument("--groups", type=int, default=640, help="to score, of eight answers")
    parser.add_argument("--nodes", type=int, default=20_000, help="of annotations; scoring has a tenth")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--traces", type=int, default=5000, help="groups through Redis")
    options = parser.parse_args()
    report: dict[str, Any] = {"load_before": os.getloadavg(), "cores": os.cpu_count()}
    met: dict[str, bool] = {}
    if "workers" in options.parts:
        report["workers"] = spread = workers.measure(
            annotations=options.annotations, groups=options.groups, nodes=options.nodes, rounds=options.rounds
        )
        # The process that hands out the work needs a core too: with two, only processor time can tell.
        enough = (os.cpu_count() or 1) > max(workers.WORKERS)
        ratio, by = ("of_linear", "") if enough else ("cpu_of_one", ", by processor time")
        for work, sides in spread.items():
            for side, found in sides.items():
                met[f"{work}, {side}: {workers.TARGET} of linear{by}"] = found[ratio] >= workers.TARGET
    if "pipeline" in options.parts:
        report["pipeline_up_to_date_cpu_s"] = seconds = _up_to_date()
        met[f"pipeline: {UP_TO_DATE_S} s"] = seconds <= UP_TO_DATE_S
    if "traces" in options.parts:
        report["traces"] = sizes = traces.measure(options.traces)
        for size, found in sizes.items():
            met[f"traces of {size}: {traces.TARGET} a second"] = (
                found["groups_per_s_of_a_core"] >= traces.TARGET
            )
    print(json.dumps(report | {"targets_met": met}, indent=2))
    return 0 if all(met.values()) else 1


def _up_to_date() -> float:
    """Seconds of processor time of `rookery pipeline run` that finds nothing to do."""
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as folder:
        model, file = Path(folder) / "model.safetensors", Path(folder) / "pipeline.toml"
        with model.open("wb") as output:
            for _ in range(_MODEL_MB):
                output.write(os.urandom(1 << 20))
        file.write_text("".join(_step(number, model) for number in range(_STEPS)))
        argv = [sys.executable, "-m", "launcher", "pipeline", "run", str(file), "--out", f"{folder}/out"]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def _step(number: int, model: Path) -> str:
    run = f"data tasks legal-moves --count 5 --seed {number} --out {{step-{number}}}"
    reads = f'reads = ["{model}"]\n' if number == 0 else ""
    return f'[[steps]]\nname = "step-{number}"\nrun = "{run}"\n{reads}'


if __name__ == "__main__":
    sys.exit(main())
