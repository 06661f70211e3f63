"""A thousand steps take no more memory than five hundred."""

import gc
from pathlib import Path

import torch

from rookery.config.trainer import TrainerSettings
from services.trainer.model.policy import Policy
from services.trainer.records.describe import describe_step
from services.trainer.records.flops import SpeedMeter
from services.trainer.records.memory import MIB, resident_bytes
from services.trainer.records.report import StepReporter
from services.trainer.tiny import build_tiny
from services.trainer.training import optimizer as adam
from services.trainer.training.step import RunningState, train_step
from tests.unit.trainer.groups import make_group

STEPS = 1000
BOUND_MIB = 4
"""The allocator's own unrest; 100 kB kept of every step would be 50 MiB."""


def test_nothing_grows_over_a_thousand_steps(tmp_path: Path) -> None:
    """Real steps on ever new groups, with all that the loop measures and writes of them."""
    torch.set_num_threads(1)
    model = build_tiny(tmp_path / "model", layers=1, hidden_size=32, intermediate_size=32)
    settings = TrainerSettings(
        model=model, run_dir=tmp_path / "run", device="cpu", lora_rank=1, lora_targets="q_proj", kl="k3"
    )
    policy = Policy(settings)
    optimizer = adam.build(policy.parameters, lr=1e-3)
    meter = SpeedMeter(policy, settings)
    state, held = RunningState(), dict[int, int]()
    with StepReporter(settings.run_dir) as report:
        for step in range(STEPS):
            groups = [make_group(step, version=step, size=2, vocabulary=80)]
            with meter.step():
                result = train_step(policy, optimizer, groups, step=step, settings=settings, state=state)
            state = state.after(groups, result, step=step, zero_variance_share=0.0, settings=settings)
            row = describe_step(groups, result.row(), version=step + 1, dropped={}, turn_rewards="sum")
            row |= meter.row(groups, tokens=result.tokens, train_s=1.0)
            report.report(row, phases_s={"rollout_wait": 0.0, "train": 1.0}, ages=[0])
            if step + 1 in (STEPS // 2, STEPS):
                gc.collect()
                held[step + 1] = resident_bytes()
    growth_mib = (held[STEPS] - held[STEPS // 2]) / MIB
    assert growth_mib < BOUND_MIB, f"{growth_mib:.1f} MiB over {STEPS // 2} steps"
