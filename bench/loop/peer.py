"""Their side: TRL's GRPOTrainer on the same work, from the packages that `make trainers` installs.

Its own generation (transformers) rather than vLLM: on a CPU that is what GRPOTrainer has. Settings
that would only cost it time are off: gradient checkpointing, saving, reporting.
"""

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.loop.reward import free_reward
from rookery.errors import SetupError

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = ROOT / ".trainers"


def peer_environment() -> dict[str, str]:
    """Variables with which a process finds TRL. Raises `SetupError` if it is not installed."""
    if not (TRAINERS / "installed").exists():
        raise SetupError(f"no TRL in {str(TRAINERS)!r}: make trainers")
    return {"PYTHONPATH": str(TRAINERS)}


def run_side(
    module: str, *arguments: str, log: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Runs a module in a process of its own, its chatter in a log. Returns the JSON of its last line. Raises
    `SetupError` if it failed; the message ends with its last words."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
    )
    log.write_text(done.stdout + done.stderr)
    if done.returncode:
        raise SetupError(f"{module} ended with {done.returncode}: {done.stderr[-500:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(argv: list[str]) -> int:
    """`peer.py WORK.json PROMPTS.jsonl`: prints one JSON object."""
    warnings.filterwarnings("ignore")
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    work = json.loads(Path(argv[0]).read_text())
    prompts = [json.loads(line) for line in Path(argv[1]).read_text().splitlines()]
    samples = work["batch_groups"] * work["group_size"]

    class Clock(TrainerCallback):  # type: ignore[misc]
        """When each step ended."""

        ended: list[float] = []  # noqa: RUF012

        def on_step_end(self, args: object, state: object, control: object, **more: object) -> None:
            self.ended.append(time.perf_counter())

    def reward(completions: list[list[dict[str, str]]], **more: object) -> list[float]:
        return [free_reward(completion[0]["content"]) for completion in completions]

    trainer = GRPOTrainer(
        model=work["model"],
        reward_funcs=reward,
        train_dataset=Dataset.from_list(prompts),
        callbacks=[Clock()],
        peft_config=LoraConfig(
            r=work["lora_rank"], lora_alpha=work["lora_alpha"], target_modules=list(work["lora_targets"])
        ),
        args=GRPOConfig(
            output_dir=str(Path(argv[0]).parent / "trl"),
            max_steps=work["warmup_steps"] + work["steps"],
            per_device_train_batch_size=samples,
            num_generations=work["group_size"],
            max_completion_length=work["tokens"],
            temperature=1.0,
            learning_rate=work["lr"],
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            shuffle_dataset=False,
            use_cpu=True,
            bf16=work["trl_precision"] == "bf16",
            seed=work["seed"],
            logging_steps=1,
            disable_tqdm=True,
            save_strategy="no",
            report_to="none",
        ),
    )
    trainer.train()
    logged = [row for row in trainer.state.log_history if "completions/mean_length" in row]
    logged = logged[work["warmup_steps"] :]
    wall_s = Clock.ended[-1] - Clock.ended[work["warmup_steps"] - 1]
    result = {
        "samples_per_s": samples * work["steps"] / wall_s,
        "step_s": wall_s / work["steps"],
        "tokens": sum(row["completions/mean_length"] for row in logged) / len(logged),
    }
    sys.stdout.write(f"\n{json.dumps(result)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
