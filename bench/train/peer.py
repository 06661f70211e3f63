"""Their side: TRL's GRPOTrainer on the same tensors, or its SFTTrainer on the same chats.

Runs from the packages that `make trainers` installs. Generation and rewards are taken out: the
trainer is handed the completions, their log-probabilities and advantages, so what is measured is its
training step alone. What would only cost it time is off: gradient checkpointing, saving, reporting.

Where there is no Triton, TRL's head scores prompt tokens too and throws them away; here it is told to
score completion tokens alone, as on a GPU, so that no ratio owes anything to that.
"""

import json
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

from bench.train.work import TARGETS, Measured, Work, clock, say, used_mib


def main(argv: list[str]) -> int:
    """`peer.py {grpo,sft} WORK.json`."""
    warnings.filterwarnings("ignore")
    import torch

    kind, path = argv
    work = Work.load(path)
    from trl.trainer import utils as head

    # `add_fused_lm_head` asks this whether to be compact; the kernels ask a name of their own.
    head._use_triton = lambda device: True
    torch.set_num_threads(work.threads)
    times: list[tuple[float, float]] = []
    trainer = _grpo(work, path) if kind == "grpo" else _sft(work, path)
    trainer.add_callback(_clock(work, times))
    before = used_mib(work, peak=False)
    trainer.train()
    steps = list(zip(times[::2], times[1::2], strict=True))[work.warmup_steps :]
    wall_s, cpu_s = ([after[i] - start[i] for start, after in steps] for i in (0, 1))
    say(Measured(work.samples, wall_s, cpu_s, before, used_mib(work, peak=True)))
    return 0


def _clock(work: Work, times: list[tuple[float, float]]) -> Any:
    """Notes when each step begins and ends."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Begin and end in turn."""

        def on_step_begin(self, args: object, state: object, control: object, **more: object) -> None:
            times.append(clock(work))

        def on_step_end(self, args: object, state: object, control: object, **more: object) -> None:
            times.append(clock(work))

    return Clock()


def _common(work: Work, path: str) -> dict[str, Any]:
    return {
        "output_dir": str(Path(path).with_suffix(".trl")),
        "max_steps": work.warmup_steps + work.steps,
        "learning_rate": work.lr,
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": False,
        "use_cpu": not work.gpu,
        "bf16": work.gpu,
        "seed": work.seed,
        "logging_steps": 1000,
        "disable_tqdm": True,
        "save_strategy": "no",
        "report_to": "none",
    }


def _grpo(work: Work, path: str) -> Any:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    vocabulary = json.loads((Path(work.model) / "config.json").read_text())["vocab_size"]

    class Fed(GRPOTrainer):  # type: ignore[misc]
        """Is handed what it would otherwise generate and score."""

        fed = 0

        def _generate_and_score_completions(self, inputs: object) -> dict[str, torch.Tensor]:
            groups = work.step_groups(self.fed, vocabulary=vocabulary)
            self.fed += 1
            flat = [(group["prompt"], one) for group in groups for one in group["completions"]]
            completion_ids = torch.tensor([one["ids"] for _, one in flat])
            prompt_ids = torch.tensor([prompt for prompt, _ in flat])
            tensors = {
                "prompt_ids": prompt_ids,
                "prompt_mask": torch.ones_like(prompt_ids),
                "completion_ids": completion_ids,
                "completion_mask": torch.ones_like(completion_ids),
                "old_per_token_logps": torch.tensor([one["logprobs"] for _, one in flat]),
                "advantages": torch.tensor([a for group in groups for a in _advantages(group)]),
                "num_items_in_batch": torch.tensor(completion_ids.numel()),
            }
            return {name: tensor.to(self.accelerator.device) for name, tensor in tensors.items()}

    return Fed(
        model=work.model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "a1"}] * work.samples),
        peft_config=LoraConfig(
            r=work.lora_rank, lora_alpha=work.lora_alpha, target_modules=TARGETS.split(",")
        ),
        args=GRPOConfig(
            per_device_train_batch_size=work.group,
            gradient_accumulation_steps=work.groups,
            num_generations=work.group,
            max_completion_length=work.completion,
            temperature=1.0,
            shuffle_dataset=False,
            # A frozen base in bfloat16 on a GPU, as ours; its default is float32.
            model_init_kwargs={"dtype": "bfloat16" if work.gpu else "float32"},
            **_common(work, path),
        ),
    )


def _advantages(group: dict[str, Any]) -> list[float]:
    rewards = [one["reward"] for one in group["completions"]]
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (deviation + 1e-4) for reward in rewards]


def _sft(work: Work, path: str) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    lines = [
        json.loads(line)["messages"] for line in Path(path).with_suffix(".jsonl").read_text().splitlines()
    ]
    chats = [{"prompt": messages[:-1], "completion": messages[-1:]} for messages in lines]
    return SFTTrainer(
        model=work.model,
        train_dataset=Dataset.from_list(chats),
        args=SFTConfig(
            per_device_train_batch_size=work.samples,
            max_length=2 * (work.prompt + work.completion),
            completion_only_loss=True,
            **_common(work, path),
        ),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
