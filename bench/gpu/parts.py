"""`python -m bench.gpu.parts PART FOLDER`: one part, in a process of its own.

Reads the suite's settings from FOLDER, and writes each figure to FOLDER/PART.json as soon as it is there.
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.gpu import runs, serving, training
from bench.gpu.suite import Figures, GpuSettings
from launcher.runs import write_json
from rookery.errors import RookeryError

FUNCTIONS: Mapping[str, Callable[[GpuSettings], Figures]] = {
    "smoke": runs.smoke,
    "reload": serving.reload,
    "canary": serving.canary,
    "mismatch-v1": partial(runs.mismatch, runner="V1"),
    "mismatch-v2": partial(runs.mismatch, runner="V2"),
    "preset": runs.preset,
    "train": training.train,
    "scale": training.scale,
    "one-gpu": runs.one_gpu,
    "kills": runs.kills,
    "plan": runs.plan,
}
SETTINGS = "suite.json"


def main(argv: list[str]) -> int:
    """Runs the part."""
    part, folder = argv
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends what it has started
    suite = GpuSettings(**json.loads(Path(folder, SETTINGS).read_text()))
    figures: dict[str, Any] = {}
    try:
        for name, value in FUNCTIONS[part](suite):
            figures[name] = value
            write_json(Path(folder, f"{part}.json"), figures)
            print(f"{name}: {value}", flush=True)
    except RookeryError as error:
        print(f"error: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
