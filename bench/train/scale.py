"""Tokens a second, MFU and peak memory on Qwen3-0.6B's shape with LoRA r16 at 4k and 16k tokens.

Weights are random, which changes no cost. Sequences are single ones (a prompt of a 32nd, one completion), so
that nothing is shared and tokens mean what they mean elsewhere. Beside them stands what prime-rl publishes of
its trainer. Without a GPU a much smaller shape runs, to know that all of this works; it measures no GPU.
"""

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.loop.peer import run_side
from bench.train.work import TARGETS, Shape, Work, build_model, resident_mib

QWEN3_06B = Shape(
    width=1024, inner=3072, layers=28, heads=16, key_heads=8, head=128, vocabulary=151_936, positions=40_960
)
"""From config.json of Qwen/Qwen3-0.6B."""
SMALL = Shape(width=128, inner=384, layers=2, heads=4, key_heads=2, head=32, vocabulary=4096, positions=4096)
"""What a CPU runs instead."""

PRIME_RL = (
    "prime-rl, Qwen3-0.6B RL, LoRA r16, 16k: 13,340 tokens/s and 5.1 GiB on an H100 (its BENCHMARKS.md)"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Sequences of `length` tokens, one a forward pass, `tokens` a step."""

    model: str
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


def measure_scale(folder: Path, *, threads: int) -> list[tuple[Scale, Reached]]:
    """All cases, each in a process of its own."""
    gpu = on_gpu()
    model = build_model(folder / "scale-model", QWEN3_06B if gpu else SMALL)
    lengths, tokens = ((4096, 16_384), 32_768) if gpu else ((256, 1024), 2048)
    found = []
    for length in lengths:
        for checkpointing in (False, True):
            case = Scale(str(model), length, tokens, checkpointing)
            path = folder / f"scale-{length}-{checkpointing}.json"
            path.write_text(json.dumps(asdict(case)))
            reached = run_side(
                "bench.train.scale",
                str(path),
                log=path.with_suffix(".log"),
                environment={"OMP_NUM_THREADS": str(threads)},
            )
            found.append((case, Reached(**reached)))
    return found


def scale_table(found: list[tuple[Scale, Reached]]) -> Table:
    """A row for each case."""
    device, gpu = found[0][1].device, on_gpu()
    shape = "Qwen3-0.6B's shape" if gpu else "A much smaller shape than Qwen3-0.6B's"
    caption = PRIME_RL if gpu else "figures of a CPU, which say nothing of a GPU"
    table = Table(
        "tokens a sequence", "activations", "tokens/s", "MFU", "peak GiB",
        title=f"{shape}, LoRA r16, on {device}", caption=caption,
    )  # fmt: skip
    for case, reached in found:
        table.add_row(
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

    from bench.train.ours import trace_group
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
        made = work.step_groups(step, vocabulary=vocabulary)
        groups = [trace_group(work, number, one) for number, one in enumerate(made)]
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
