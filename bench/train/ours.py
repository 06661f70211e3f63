"""Our side: `train_step` on the groups, or `rookery sft`'s steps on the chats. A process of its own."""

import json
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from bench.train.work import TARGETS, Measured, Work, clock, say, used_mib
from rookery.trace import TraceGroup

PRECISIONS: Mapping[bool, Literal["fp32", "bf16"]] = {False: "fp32", True: "bf16"}
"""Of the CPU and of a GPU, as the peer's."""


def main(argv: list[str]) -> int:
    """`ours.py {grpo,sft} WORK.json`."""
    kind, path = argv
    work = Work.load(path)
    say(run_sft(work, Path(path).with_suffix(".jsonl")) if kind == "sft" else run_grpo(work))
    return 0


def run_grpo(work: Work) -> Measured:
    """Steps on the work's groups: as many sequences a forward pass as TRL has, `work.group`."""
    import torch

    from rookery.config.trainer import TrainerSettings
    from services.trainer.model.policy import Policy
    from services.trainer.training import optimizer as adam
    from services.trainer.training.step import RunningState, train_step

    torch.set_num_threads(work.threads)
    settings = TrainerSettings(
        model=work.model,
        run_dir=Path(work.model).parent,
        device="auto" if work.gpu else "cpu",
        precision=PRECISIONS[work.gpu],
        lr=work.lr,
        lora_rank=work.lora_rank,
        lora_alpha=work.lora_alpha,
        lora_targets=TARGETS,
        warmup_steps=0,
        # A group, as many sequences as the peer's pass has; ours share their prompt.
        micro_batch_tokens=work.prompt + work.group * work.completion,
        kl_report_every=0,
    )
    policy = Policy(settings)
    optimizer = adam.build(policy.parameters, lr=work.lr)
    vocabulary = int(policy.model.config.vocab_size)
    before, step_s, cpu_s = used_mib(work, peak=False), list[float](), list[float]()
    for step in range(work.warmup_steps + work.steps):
        groups = trace_groups(work, step, vocabulary=vocabulary)
        started, began = clock(work)
        train_step(policy, optimizer, groups, step=0, settings=settings, state=RunningState())
        ended, stopped = clock(work)
        step_s.append(ended - started)
        cpu_s.append(stopped - began)
    kept = slice(work.warmup_steps, None)
    return Measured(work.samples, step_s[kept], cpu_s[kept], before, used_mib(work, peak=True))


def run_sft(work: Work, chats: Path) -> Measured:
    """`rookery sft` itself; its metrics.jsonl has the seconds of each step."""
    import shutil

    from rookery.config.finetune import SftSettings
    from services.trainer.finetune import sft
    from services.trainer.finetune.output import MetricsLog

    before, cpu_s, write = used_mib(work, peak=False), [time.process_time()], MetricsLog.write

    def noting(self: MetricsLog, row: Mapping[str, Any]) -> None:
        write(self, row)
        cpu_s.append(time.process_time())

    MetricsLog.write = noting  # type: ignore[method-assign]
    out = chats.with_suffix(".out")
    shutil.rmtree(out, ignore_errors=True)
    sft.run(
        SftSettings(
            model=work.model,
            data=str(chats),
            out=out,
            steps=work.warmup_steps + work.steps,
            batch_size=work.samples,
            lr=work.lr,
            warmup_steps=1,
            max_length=2 * (work.prompt + work.completion),
            precision=PRECISIONS[work.gpu],
            micro_batch_tokens=1 << 20,  # the whole step in one pass
            device="auto" if work.gpu else "cpu",
            threads=work.threads,
        )
    )
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    step_s = [row["step_s"] for row in rows][work.warmup_steps :]
    own_s = [after - start for start, after in pairwise(cpu_s)][work.warmup_steps :]
    return Measured(work.samples, step_s, own_s, before, used_mib(work, peak=True))


def trace_groups(work: Work, step: int, *, vocabulary: int) -> list[TraceGroup]:
    """The groups of `Work.step_groups` as the trainer takes them."""
    from services.trainer.memory_probe import synthetic_group

    return [
        synthetic_group(
            number,
            made["prompt"],
            [(a["ids"], a["logprobs"], a["reward"]) for a in made["completions"]],
        )
        for number, made in enumerate(work.step_groups(step, vocabulary=vocabulary))
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
