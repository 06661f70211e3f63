"""Tokens a second, MFU and peak memory on the shapes of Qwen3-0.6B and 4B with LoRA r16, up to 16k tokens.

Weights are random, which changes no cost. Sequences are single ones (a prompt of a 32nd, one completion), so
that nothing is shared and tokens mean what they mean elsewhere. Beside them stands what prime-rl publishes of
its trainer. Without a GPU a much smaller shape runs, to know that all of this works; it measures no GPU.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.loop.peer import run_side
from bench.train.work import TARGETS, Shape, Work, build_model, resident_mib
from rookery import devices

QWEN3_06B = Shape(
    width=1024, inner=3072, layers=28, heads=16, key_heads=8, head=128, vocabulary=151_936, positions=40_960
)
QWEN3_4B = Shape(
    width=2560, inner=9728, layers=36, heads=32, key_heads=8, head=128, vocabulary=151_936, positions=40_960
)
"""From config.json of Qwen/Qwen3-0.6B and Qwen/Qwen3-4B."""
SMALL = Shape(width=128, inner=384, layers=2, heads=4, key_heads=2, head=32, vocabulary=4096, positions=4096)
"""What a CPU runs instead."""

LARGE_GIB = 40
"""The memory of a GPU from which Qwen3-4B is measured too."""

PRIME_RL = (
    "prime-rl, RL, LoRA r16, 16k, on an H100: Qwen3-0.6B 13,340 tokens/s and 5.1 GiB, Qwen3-4B 6,230 "
    "tokens/s and 23.3 GiB (its BENCHMARKS.md)"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Sequences of `length` tokens, one a forward pass, `tokens` a step."""

    model: str
    shape: str
    length: int
    tokens: int
    checkpointing: bool
    steps: int = 3
    """Measured ones; one more warms up."""


@dataclass(frozen=True, slots=True)
class Reached:
    """By a process of its own. `peak_gib` is torch's on a GPU, the resident set on a CPU."""

    device: str
    tokens_per_s: float
    mfu: float
    peak_gib: float


def on_gpu() -> bool:
    """Whether there is one."""
    import torch

    return bool(torch.cuda.is_available())


def measure_scale(folder: Path, *, threads: int) -> Iterator[tuple[Scale, Reached]]:
    """All cases, each in a process of its own."""
    for number, case in enumerate(_cases(folder)):
        path = folder / f"scale-{number}.json"
        path.write_text(json.dumps(asdict(case)))
        environment = {"OMP_NUM_THREADS": str(threads)}
        log = path.with_suffix(".log")
        yield case, Reached(**run_side("bench.train.scale", str(path), log=log, environment=environment))


def _cases(folder: Path) -> Iterator[Scale]:
    """What this machine has room for. Builds the models."""
    if not on_gpu():
        model = build_model(folder / "scale-model", SMALL)
        for length in (256, 1024):
            yield from (Scale(str(model), "small", length, 2048, checked) for checked in (False, True))
        return
    model = build_model(folder / "scale-model", QWEN3_06B, dtype="bfloat16")
    for length in (4096, 16_384):
        yield from (Scale(str(model), "Qwen3-0.6B", length, 32_768, checked) for checked in (False, True))
    if (devices.memory_gib("auto") or 0) >= LARGE_GIB:
        model = build_model(folder / "scale-large", QWEN3_4B, dtype="bfloat16")
        yield Scale(str(model), "Qwen3-4B", 16_384, 32_768, checkpointing=True)


def scale_table(found: list[tuple[Scale, Reached]]) -> Table:
    """A row for each case."""
    caption = PRIME_RL if on_gpu() else "figures of a CPU, which say nothing of a GPU"
    table = Table(
        "shape", "tokens a sequence", "activations", "tokens/s", "MFU", "peak GiB",
        title=f"Random weights, LoRA r16, on {found[0][1].device}", caption=caption,
    )  # fmt: skip
    for case, reached in found:
        table.add_row(
            case.shape,
            f"{case.length:,}",
            "recomputed" if case.checkpointing else "kept",
            f"{reached.tokens_per_s:,.0f}",
            f"{reached.mfu:.1%}",
            f"{reached.peak_gib:.2f}",
        )
    return table


def main(argv: list[str]) -> int:
    """`scale.py CASE.json`: one case."""
    (path,) = argv
    print(json.dumps(asdict(run(Scale(**json.loads(Path(path).read_text()))))))
    return 0


def run(case: Scale) -> Reached:
    """Real steps; the median of their speeds."""
    import torch

    from bench.train.ours import trace_groups
    from rookery.config.trainer import TrainerSettings
    from services.trainer.model.policy import Policy
    from services.trainer.records.flops import SpeedMeter
    from services.trainer.training import optimizer as adam
    from services.trainer.training.step import RunningState, train_step

    # A completion's last token is no input, so a row has exactly `length` of them.
    prompt = case.length // 32
    work = Work(
        "scale", case.model, prompt, case.length - prompt + 1, group=2, groups=case.tokens // case.length // 2
    )
    settings = TrainerSettings(
        model=case.model,
        run_dir=Path(case.model).parent,
        lora_targets=TARGETS,
        micro_batch_tokens=case.length,
        gradient_checkpointing=case.checkpointing,
        kl_report_every=0,
        warmup_steps=0,
    )
    policy = Policy(settings)
    optimizer = adam.build(policy.parameters, lr=settings.lr)
    meter = SpeedMeter(policy, settings)
    vocabulary, rows, speeds = int(policy.model.config.vocab_size), [], []
    for step in range(case.steps + 1):
        groups = trace_groups(work, step, vocabulary=vocabulary)
        started = time.perf_counter()
        with meter.step():
            result = train_step(policy, optimizer, groups, step=0, settings=settings, state=RunningState())
        taken = time.perf_counter() - started
        speeds.append(case.tokens / taken)
        rows.append(meter.row(groups, tokens=result.tokens, train_s=taken))
    gpu = policy.device.type == "cuda"
    return Reached(
        device=torch.cuda.get_device_name() if gpu else f"a CPU, {torch.get_num_threads()} threads",
        tokens_per_s=statistics.median(speeds[1:]),
        mfu=statistics.median(row["mfu"] for row in rows[1:]),
        peak_gib=(max(row["cuda_peak_mib"] for row in rows) if gpu else resident_mib("VmHWM")) / 1024,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
