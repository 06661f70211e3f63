"""`python -m bench.train`: our training steps beside TRL's. Minutes.

One run, one machine, one model, the same tokens: GRPO on long prompts with short answers and on short
prompts with long ones, and supervised fine-tuning. On a CPU the model is small, and both sides compute in
float32; on a GPU it has Qwen3-0.6B's shape, and they compute in bfloat16. Every side of every round is a
process of its own, so that a peak of memory is its own. Then `scale`.
"""

import json
import logging
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt
from rich.console import Console
from rich.table import Table

from bench.loop.peer import peer_environment, run_side
from bench.train.scale import QWEN3_06B, measure_scale, on_gpu, scale_table
from bench.train.work import Measured, Shape, Work, build_model, examples
from rookery import devices
from rookery.devices import Device
from rookery.errors import SetupError
from rookery.settings import Settings, fail

Kind = Literal["grpo", "sft"]

LEAST_SPEED: dict[Kind, float] = {"grpo": 2.0, "sft": 1.3}
"""Samples a second over TRL's."""
MOST_MEMORY: dict[Kind, float] = {"grpo": 0.7}
"""Peak resident memory over TRL's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rounds of one piece of work, both sides in turn."""

    kind: Kind
    work: Work
    ours: Sequence[Measured]
    theirs: Sequence[Measured]

    def ratio(self, of: Callable[[Measured], float]) -> float:
        """Median over rounds of ours over theirs."""
        return statistics.median(of(o) / of(t) for o, t in zip(self.ours, self.theirs, strict=True))

    @property
    def speed(self) -> float:
        """By the clock."""
        return self.ratio(lambda side: side.samples_per_s)

    @property
    def cpu_speed(self) -> float:
        """By processor time: what a busy machine leaves of the truth."""
        return self.ratio(lambda side: side.samples_per_cpu_s)

    @property
    def memory(self) -> float:
        """Of the peaks."""
        return self.ratio(lambda side: side.peak_mib)

    @property
    def met(self) -> bool:
        """Whether all that is promised of this kind of work holds, speed by the clock."""
        return self.speed >= LEAST_SPEED[self.kind] and self.memory <= MOST_MEMORY.get(self.kind, 1.0)


class BenchSettings(Settings, env_prefix="BENCH_TRAIN_"):
    """Samples trained a second and peak memory, ours beside TRL's."""

    rounds: PositiveInt = 2
    """Each round runs both sides of each piece of work."""
    steps: PositiveInt = 3
    """Measured optimizer steps of each; one more warms up."""
    threads: PositiveInt = 1
    """CPU threads of either side."""
    device: Device = "auto"
    """`cpu`, the GPU of both sides, or auto: the first one, if there is one."""
    peers: bool = True
    """Measure beside TRL, which `make trainers` installs."""
    scale: bool = True
    """Also measure tokens/s, MFU and memory on Qwen3-0.6B's shape; on a CPU on a small one."""
    out: Path = Path("runs/bench-train")
    """Receives the model, logs and report.json."""


def main(argv: list[str]) -> int:
    """Measures and prints; 1 when a promise is broken."""
    settings = BenchSettings.parse(argv, prog="python -m bench.train")
    peers = peer_environment() if settings.peers else None
    logging.basicConfig(level=logging.WARNING)
    console = Console(width=max(110, Console().width))
    folder = (settings.out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True)
    devices.restrict(settings.device)
    works = pieces(folder / "model", settings, gpu=on_gpu()) if peers else []
    outcomes: list[Outcome] = []
    if peers:
        outcomes = [measure(kind, work, peers, folder, settings, console) for kind, work in works]
        console.print(ratios(outcomes))
    with console.status("scale"):
        scaled = list(measure_scale(folder, threads=settings.threads)) if settings.scale else []
    if scaled:
        console.print(scale_table(scaled))
    report = {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": sys.version},
        "outcomes": [{**asdict(o), "speed": o.speed, "memory": o.memory, "met": o.met} for o in outcomes],
        "scale": [{"case": asdict(case), "reached": asdict(reached)} for case, reached in scaled],
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(outcome.met for outcome in outcomes) else 1


def pieces(model: Path, settings: BenchSettings, *, gpu: bool) -> list[tuple[Kind, Work]]:
    """What is measured beside TRL, on a model that is built in the folder `model`."""
    folder = build_model(model, QWEN3_06B if gpu else Shape())
    common = {"model": str(folder), "steps": settings.steps, "threads": settings.threads, "gpu": gpu}
    return [
        ("grpo", Work("short-answers", prompt=300, completion=32, **common)),  # type: ignore[arg-type]
        ("grpo", Work("reasoning", prompt=150, completion=400, groups=2, **common)),  # type: ignore[arg-type]
        ("sft", Work("chats", prompt=70, completion=30, **common)),  # type: ignore[arg-type]
    ]


def measure(
    kind: Kind, work: Work, peers: Mapping[str, str], folder: Path, settings: BenchSettings, console: Console
) -> Outcome:
    """All rounds of one piece of work."""
    path = work.save(folder)
    if kind == "sft":
        lines = examples(work, work.samples * (work.warmup_steps + work.steps))
        path.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ours, theirs = [], []
    threading = {"OMP_NUM_THREADS": str(settings.threads)}
    for number in range(settings.rounds):
        with console.status(f"{work.name}, round {number + 1} of {settings.rounds}"):
            theirs.append(side("bench.train.peer", kind, path, {**threading, **peers}))
            ours.append(side("bench.train.ours", kind, path, threading))
    return Outcome(kind, work, ours, theirs)


def side(module: str, kind: Kind, work: Path, environment: Mapping[str, str]) -> Measured:
    """One side of one round. Raises as `run_side` does."""
    log = work.with_suffix(f".{module.rpartition('.')[2]}.log")
    return Measured(**run_side(module, kind, str(work), log=log, environment=environment))


def ratios(outcomes: list[Outcome]) -> Table:
    """A row for each piece of work; medians over rounds."""
    table = Table(
        "work", "tokens", "samples", "ours/s", "TRL/s", "speed", "by CPU", "ours MiB", "TRL MiB", "memory",
        "",
        title="Training steps beside TRL's on the same tokens",
        caption="speed: samples a second over TRL's, by the clock and by processor time; memory: the peak, "
        "of the process with its libraries on a CPU, of torch on a GPU, over TRL's",
    )  # fmt: skip
    for outcome in outcomes:
        work = outcome.work
        table.add_row(
            work.name,
            f"{work.prompt}/{work.completion}",
            f"{work.groups} x {work.group}",
            f"{max(side.samples_per_s for side in outcome.ours):.2f}",
            f"{max(side.samples_per_s for side in outcome.theirs):.2f}",
            f"{outcome.speed:.2f}",
            f"{outcome.cpu_speed:.2f}",
            f"{max(side.peak_mib for side in outcome.ours):,.0f}",
            f"{max(side.peak_mib for side in outcome.theirs):,.0f}",
            f"{outcome.memory:.2f}",
            "[green]met[/]" if outcome.met else "[red]missed[/]",
        )
    return table


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        sys.exit(fail(error))
