"""Run by torchrun: the same steps alone and by all processes; rank 0 writes what came out.

    torchrun ... several.py FOLDER      FOLDER holds tiny/ and gpt2/

Every case is a folder FOLDER/out/CASE with alone/ and all/: rows.json, held.json (the weights in rank 0), and
the files of the last commit.
"""

import json
import sys
from pathlib import Path
from typing import Any

from rookery.config.trainer import TrainerSettings
from services.trainer.distributed.process_group import World, join_processes
from services.trainer.model.policies import build_policy
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.training.step import RunningState
from tests.unit.trainer.contents import contents
from tests.unit.trainer.groups import make_group

STEPS = 3
CASES: dict[str, dict[str, Any]] = {
    "grpo": {"kl": "policy_reference", "max_grad_norm": 0.01},
    "gspo": {"objective": "gspo", "baseline": "ema"},
    "ppo": {"objective": "ppo", "ppo_epochs": 2, "ppo_mini_batches": 2, "kl": "k1"},
    "all weights": {"lora_rank": 0, "model": "gpt2"},
    "fsdp2": {"sharding": "fsdp2", "kl": "policy_reference", "max_grad_norm": 0.01},
    "fsdp2 ppo": {"sharding": "fsdp2", "objective": "ppo", "gradient_checkpointing": True},
    "fsdp2 merged": {"sharding": "fsdp2", "model": "gpt2", "lora_targets": "c_attn,c_proj,c_fc"},
    "fsdp2 all weights": {"sharding": "fsdp2", "lora_rank": 0, "model": "gpt2", "kl": "k3"},
}  # fmt: skip


def settings_of(case: str, folder: Path) -> TrainerSettings:
    changed = {"model": "tiny", **CASES[case]}
    changed["model"] = folder / changed["model"]
    return TrainerSettings(
        run_dir=folder / "run", device="cpu", threads=1, micro_batch_tokens=64, row_tokens=24, lr=1e-2,
        warmup_steps=0, **changed,
    )  # fmt: skip


def steps(settings: TrainerSettings, world: World, out: Path) -> None:
    """Steps, one of them on a single row; before the last, another trainer takes over from a commit."""
    trainer = PolicyTrainer(settings, build_policy(settings), world)
    rows, state = [], RunningState()
    for step in range(STEPS):
        if step == STEPS - 1:
            _keep(trainer, out / "middle", world)
            trainer = PolicyTrainer(settings, build_policy(settings), world)
            trainer.load(out / "middle")
        groups = [make_group(10 * step + i, version=step, vocabulary=80) for i in range(3)]
        if step == 1:
            groups = [make_group(98, version=step, vocabulary=80, size=2)]  # one row: some get none
        result = trainer.train_step(groups, step=step, state=state)
        state = state.after(groups, result, step=step, zero_variance_share=0.0, settings=settings)
        figures = {
            f"{kind} of {name}": sum(getattr(own, kind))
            for name, own in result.token_figures.items()
            for kind in ("ratios", "advantages")
        }
        rows.append(result.row() | figures)
    _keep(trainer, out, world)
    if world.rank == 0:
        (out / "rows.json").write_text(json.dumps(rows))
        (out / "held.json").write_text(json.dumps(_held(trainer)))


def _held(trainer: PolicyTrainer) -> int:
    """Weights in this process."""
    parameters = trainer.policy.model.parameters()
    return sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in parameters)


def _keep(trainer: PolicyTrainer, out: Path, world: World) -> None:
    files = contents(trainer.files())
    if world.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (out / name).write_bytes(data)
    world.gather([])  # the others read what rank 0 wrote


def main() -> None:
    folder = Path(sys.argv[1])
    with join_processes(TrainerSettings(model=folder, run_dir=folder, device="cpu")) as world:
        world.command = lambda _: None  # every process makes the same calls by itself
        for case in CASES:
            settings = settings_of(case, folder)
            if world.rank == 0:
                steps(
                    settings.model_copy(update={"sharding": "none"}), World(), folder / "out" / case / "alone"
                )
            world.sharded = settings.sharding != "none"
            steps(settings, world, folder / "out" / case / "all")


if __name__ == "__main__":
    main()
