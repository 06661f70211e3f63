"""`python -m bench.loop`: all sides in turn, round by round, then a table and a JSON file.

Rookery runs twice in a round: groups start as early as the staleness allows, and just in time. Everything is
started fresh, and no two run at the same time.
"""

import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from rich.console import Console
from rich.table import Table

from bench.loop.ours import PHASES, Ours, run_ours
from bench.loop.peer import peer_environment, run_side
from bench.loop.workload import Workload, endless_model, write_prompts
from rookery.errors import SetupError
from rookery.settings import Settings, fail

STARTS = {"early": False, "just in time": True}
"""When groups start: as early as the staleness allows or later, and the setting `just_in_time` for it."""


class BenchSettings(Settings):
    """Samples trained per second, ours against TRL's GRPOTrainer."""

    model: Path = Path("models/rook-tiny")
    """Model directory."""
    source: Path = Path("samples/lichess.pgn.zst")
    """Games to draw positions from."""
    batch_groups: PositiveInt = 8
    """Groups in a step."""
    group_size: PositiveInt = 8
    """Completions of a group."""
    staleness: NonNegativeInt = 2
    """Versions that a group may be old when it is trained on."""
    tokens: PositiveInt = 32
    """Tokens of a completion. With fewer, the trainer is the slower side."""
    style: str = "mover-squares"
    """Prompt style; for a chat model one with instructions, such as pieces-legal-san."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of both trainers, unless `trl_precision` is set."""
    trl_precision: Literal["fp32", "bf16"] | None = None
    """Of TRL alone, which is fastest in fp32 on a CPU."""
    steps: PositiveInt = 40
    """Measured optimizer steps of each round."""
    warmup_steps: PositiveInt = 8
    """Steps before them: ours fills its pipeline, theirs its caches."""
    rounds: PositiveInt = 2
    """Each round runs all."""
    trl: bool = True
    """Also run TRL, which `make trainers` installs."""
    out: Path = Path("runs/bench-loop")
    """Receives logs, adapters and report.json."""


def main(argv: list[str]) -> int:
    """Measures and prints."""
    try:
        settings = BenchSettings.parse(argv, prog="python -m bench.loop")
        if not (settings.model / "config.json").exists():
            raise SetupError(f"no model in {str(settings.model)!r} (--model)")
        environment = peer_environment() if settings.trl else None
    except SetupError as error:
        return fail(error)
    logging.basicConfig(level=logging.WARNING)
    console = Console(soft_wrap=True)
    folder = settings.out / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    work = Workload(
        model=endless_model(settings.model, folder / "model"),
        source=settings.source.resolve(),
        steps=settings.steps,
        warmup_steps=settings.warmup_steps,
        batch_groups=settings.batch_groups,
        group_size=settings.group_size,
        staleness=settings.staleness,
        tokens=settings.tokens,
        style=settings.style,
        precision=settings.precision,
        trl_precision=settings.trl_precision or settings.precision,
    )
    (folder / "work.json").write_text(json.dumps(asdict(work), default=str))
    write_prompts(work, folder / "prompts.jsonl")
    ours: dict[str, list[Ours]] = {start: [] for start in STARTS}
    theirs = []
    for number in range(settings.rounds):
        with console.status(f"round {number + 1} of {settings.rounds}") as status:
            if environment:
                files = [str((folder / name).absolute()) for name in ("work.json", "prompts.jsonl")]
                log = folder / f"trl-{number}.log"
                theirs.append(run_side("bench.loop.peer", *files, log=log, environment=environment))
            # In every other round the other way round, so that a machine that changes favours neither start.
            for start, results in list(ours.items())[:: -1 if number % 2 else 1]:
                status.update(f"round {number + 1} of {settings.rounds}: Rookery, {start}")
                name = f"{start.replace(' ', '-')}-{number}"
                results.append(run_ours(work, folder.resolve(), name, just_in_time=STARTS[start]))
    report = {
        "work": asdict(work),
        "cores": os.cpu_count(),
        "ours": {start: [asdict(result) for result in results] for start, results in ours.items()},
        "trl": theirs,
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2, default=str) + "\n")
    show(console, settings.model, work, ours=ours, theirs=theirs)
    return 0


def show(
    console: Console,
    model: Path,
    work: Workload,
    *,
    ours: Mapping[str, list[Ours]],
    theirs: list[dict[str, float]],
) -> None:
    """The figures of every round, the ratio, and where our time goes."""
    console.print(
        f"{model}: {work.samples} samples a step ({work.batch_groups} groups of {work.group_size}), "
        f"{work.style}, {work.tokens} tokens each, {work.precision} (TRL {work.trl_precision}), "
        f"LoRA r={work.lora_rank}, staleness {work.staleness}, {work.steps} steps a round, "
        f"{os.cpu_count()} cores"
    )
    heads = ("samples/s", "step, s", "idle", "mean age", "tokens")
    table = Table("round", "", *heads)
    for number in range(len(ours["just in time"])):
        for peer in theirs[number : number + 1]:
            table.add_row(
                str(number + 1), "TRL",
                f"{peer['samples_per_s']:.1f}", f"{peer['step_s']:.3f}", "", "", f"{peer['tokens']:.1f}",
            )  # fmt: skip
        for start, results in ours.items():
            mine = results[number]
            table.add_row(
                str(number + 1), f"Rookery, {start}", f"{mine.samples_per_s:.1f}", f"{mine.step_s:.3f}",
                f"{mine.trainer_idle:.1%}", f"{mine.age:.2f}", f"{mine.tokens:.1f}",
            )  # fmt: skip
    console.print(table)
    for start, results in ours.items():
        _show_time(console, start, results)
        if theirs:
            peers = statistics.fmean(peer["samples_per_s"] for peer in theirs)
            console.print(f"  ratio to TRL {mean(results, 'samples_per_s') / peers:.2f}")


def _show_time(console: Console, start: str, results: list[Ours]) -> None:
    step_s = mean(results, "step_s")
    phases = {phase: statistics.fmean(result.phases_s[phase] for result in results) for phase in PHASES}
    phases["other"] = step_s - sum(phases.values())
    parts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in phases.items())
    cores = {name: statistics.fmean(r.cpu_cores[name] for r in results) for name in results[0].cpu_cores}
    busy = ", ".join(f"{name} {value:.2f}" for name, value in cores.items() if value >= 0.005)
    console.print(f"{start}: the trainer's step, {step_s:.3f} s: {parts}")
    console.print(f"  no group might start {mean(results, 'at_bound'):.0%} of the time; cores in use: {busy}")


def mean(results: list[Ours], name: str) -> float:
    """Of one figure over the rounds."""
    values: list[Any] = [getattr(result, name) for result in results]
    return statistics.fmean(values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
