"""`python -m bench.train`: our training steps beside TRL's, and how their cost grows. Minutes.

One run, one machine, one model, the same tokens: GRPO on long prompts with short answers and on short
prompts with long ones, and supervised fine-tuning, both sides on the CPU. Every side of every round is a
process of its own, so that a peak of memory is its own. Then how our cost grows; then `scale`, on a GPU if
there is one.
"""

import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt
from pydantic_settings import SettingsConfigDict
from rich.console import Console
from rich.table import Table

from bench.loop.peer import peer_python
from bench.train.scale import Reached, Scale, measure_scale, scale_table
from bench.train.work import Measured, Work, build_model, examples, hear
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
        """Of the processes' peaks, libraries and all."""
        return self.ratio(lambda side: side.peak_mib)

    @property
    def met(self) -> bool:
        """Whether all that is promised of this kind of work holds, speed by the clock."""
        return self.speed >= LEAST_SPEED[self.kind] and self.memory <= MOST_MEMORY.get(self.kind, 1.0)


ROOT = Path(__file__).resolve().parents[2]


class BenchSettings(Settings):
    """Samples trained a second and peak memory, ours beside TRL's."""

    model_config = SettingsConfigDict(env_prefix="BENCH_TRAIN_")

    rounds: PositiveInt = 2
    """Each round runs both sides of each piece of work."""
    steps: PositiveInt = 3
    """Measured optimizer steps of each; one more warms up."""
    threads: PositiveInt = 1
    """CPU threads of either side."""
    peers: bool = True
    """Measure beside TRL."""
    growth: bool = True
    """Also measure how our cost grows with group, length and batch."""
    scale: bool = True
    """Also measure tokens/s, MFU and memory on Qwen3-0.6B's shape; on a CPU on a small one."""
    out: Path = Path("runs/bench-train")
    """Receives the model, logs, the peer's environment and report.json."""


def main(argv: list[str]) -> int:
    """Measures and prints; 1 when a promise is broken."""
    settings = BenchSettings.parse(argv, prog="python -m bench.train")
    logging.basicConfig(level=logging.WARNING)
    console = Console(width=max(110, Console().width))
    folder = (settings.out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True)
    works = pieces(build_model(folder / "model"), settings)
    outcomes: list[Outcome] = []
    if settings.peers:
        python = peer_python(settings.out / "trl-env").absolute()
        outcomes = [measure(kind, work, python, folder, settings, console) for kind, work in works]
        console.print(ratios(outcomes))
    grown = measure_growth(works[0][1], folder, console) if settings.growth else []
    if grown:
        console.print(growth_table(grown))
    scaled = scale(folder, settings, console) if settings.scale else []
    if scaled:
        console.print(scale_table(scaled))
    report = {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": sys.version},
        "outcomes": [{**asdict(o), "speed": o.speed, "memory": o.memory, "met": o.met} for o in outcomes],
        "growth": [{"work": asdict(work), "ours": asdict(result)} for work, result in grown],
        "scale": [{"case": asdict(case), "reached": asdict(reached)} for case, reached in scaled],
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(outcome.met for outcome in outcomes) else 1


def pieces(model: Path, settings: BenchSettings) -> list[tuple[Kind, Work]]:
    """What is measured beside TRL."""
    common = {"model": str(model), "steps": settings.steps, "threads": settings.threads}
    return [
        ("grpo", Work("short-answers", prompt=300, completion=32, **common)),  # type: ignore[arg-type]
        ("grpo", Work("reasoning", prompt=150, completion=400, groups=2, **common)),  # type: ignore[arg-type]
        ("sft", Work("chats", prompt=70, completion=30, **common)),  # type: ignore[arg-type]
    ]


def measure(
    kind: Kind, work: Work, python: Path, folder: Path, settings: BenchSettings, console: Console
) -> Outcome:
    """All rounds of one piece of work."""
    path = work.save(folder)
    if kind == "sft":
        lines = examples(work, work.samples * (work.warmup_steps + work.steps))
        path.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ours, theirs = [], []
    for number in range(settings.rounds):
        with console.status(f"{work.name}, round {number + 1} of {settings.rounds}"):
            theirs.append(side(python, "bench.train.peer", kind, path, settings.threads))
            ours.append(side(Path(sys.executable), "bench.train.ours", kind, path, settings.threads))
    return Outcome(kind, work, ours, theirs)


def side(python: Path, module: str, kind: Kind, work: Path, threads: int) -> Measured:
    """One side of one round, its chatter in a log.

    Raises:
        SetupError: it failed; the message ends with its last words.
    """
    done = subprocess.run(
        [str(python), "-m", module, kind, str(work)],
        cwd=ROOT,
        env=environment(threads),
        capture_output=True,
        text=True,
    )
    work.with_suffix(f".{module.rpartition('.')[2]}.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise SetupError(f"{module} ended with {done.returncode}: {done.stderr[-500:]}")
    return hear(done.stdout)


def environment(threads: int) -> dict[str, str]:
    """Of every process that is measured."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}


def scale(folder: Path, settings: BenchSettings, console: Console) -> list[tuple[Scale, Reached]]:
    """The cases of `bench.train.scale`."""
    with console.status("scale"):
        return measure_scale(folder, root=ROOT, environment=environment(settings.threads))


def measure_growth(work: Work, folder: Path, console: Console) -> list[tuple[Work, Measured]]:
    """Ours alone, one thing changed at a time."""
    base = replace(work, prompt=150, completion=100, groups=2, steps=2)
    works = [
        *(replace(base, name=f"group-{group}", group=group) for group in (2, 4, 8, 16)),
        *(replace(base, name=f"length-{length}", completion=length) for length in (50, 200, 400)),
        *(replace(base, name=f"batch-{groups}", groups=groups) for groups in (1, 4)),
    ]
    found = []
    for one in works:
        with console.status(f"growth: {one.name}"):
            path = one.save(folder)
            found.append((one, side(Path(sys.executable), "bench.train.ours", "grpo", path, one.threads)))
    return found


def ratios(outcomes: list[Outcome]) -> Table:
    """A row for each piece of work; medians over rounds."""
    table = Table(
        "work", "tokens", "samples", "ours/s", "TRL/s", "speed", "by CPU", "ours MiB", "TRL MiB", "memory",
        "",
        title="Training steps beside TRL's on the same tokens",
        caption="speed: samples a second over TRL's, by the clock and by processor time; memory: peak "
        "resident, libraries and all, over TRL's",
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


def growth_table(grown: list[tuple[Work, Measured]]) -> Table:
    """How processor time and memory grow with what was changed."""
    table = Table(
        "", "prompt/answer", "groups x size", "CPU s a step", "CPU ms a sample", "MiB for training",
        title="How our cost grows",
        caption="group-8 is length-100 and batch-2 as well",
    )  # fmt: skip
    for work, result in grown:
        step_s = sum(result.cpu_s) / len(result.cpu_s)
        table.add_row(
            work.name,
            f"{work.prompt}/{work.completion}",
            f"{work.groups} x {work.group}",
            f"{step_s:.2f}",
            f"{1000 * step_s / work.samples:.0f}",
            f"{result.own_mib:,.0f}",
        )
    return table


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        sys.exit(fail(error))
