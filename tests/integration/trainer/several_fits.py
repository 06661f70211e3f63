"""Run by torchrun: what sft (resumed), dpo and reward-model make in all processes together.

torchrun ... several_fits.py FOLDER      FOLDER holds tiny/, pairs.jsonl, chats.jsonl and a stopped all/sft/
"""

import sys
from contextlib import nullcontext
from pathlib import Path

from rookery.config.finetune import DpoSettings, RewardModelSettings, SftSettings
from services.trainer.distributed.process_group import join_processes
from services.trainer.finetune import dpo, loop, sft
from services.trainer.reward_model import training as reward_model

BOTH = {
    "batch_size": 7, "steps": 4, "lr": 1e-3, "warmup_steps": 1, "precision": "fp32", "threads": 1,
    "device": "cpu", "save_dtype": "float32", "micro_batch_tokens": 400, "eval_every": 2,
}  # fmt: skip

SFT = {
    "batch_size": 9, "steps": 80, "lr": 1e-3, "warmup_steps": 2, "threads": 1, "device": "cpu",
    "eval_examples": 20, "eval_every": 40, "save_dtype": "float32",
}  # fmt: skip


def sft_settings(folder: Path, out: Path) -> SftSettings:
    chats = folder / "chats.jsonl"
    return SftSettings(model=folder / "tiny", data=chats, eval_data=chats, out=out, precision="fp32", **SFT)  # type: ignore[arg-type]


def dpo_settings(folder: Path, out: Path) -> DpoSettings:
    model, data = folder / "tiny", str(folder / "pairs.jsonl")
    return DpoSettings(model=model, data=data, out=out, lora_rank=4, row_tokens=200, **BOTH)  # type: ignore[arg-type]


def reward_model_settings(folder: Path, out: Path) -> RewardModelSettings:
    return RewardModelSettings(model=folder / "tiny", data=str(folder / "pairs.jsonl"), out=out, **BOTH)  # type: ignore[arg-type]


def main() -> None:
    folder = Path(sys.argv[1])
    of_dpo = dpo_settings(folder, folder / "all" / "dpo")
    with join_processes(of_dpo) as world:
        loop.join_processes = lambda settings: nullcontext(world)  # type: ignore[assignment,return-value]
        sft.run(sft_settings(folder, folder / "all" / "sft"))
        dpo.run(of_dpo)
        reward_model.run(reward_model_settings(folder, folder / "all" / "reward-model"))


if __name__ == "__main__":
    main()
