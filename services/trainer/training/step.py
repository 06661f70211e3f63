"""One training step: an update of the policy on one batch of groups, and the running state after it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rookery.trace import TraceGroup
from services.trainer.distributed.process_group import World
from services.trainer.losses.kl import kl_coefficient
from services.trainer.settings import TrainerSettings
from services.trainer.training.ppo import ppo_update
from services.trainer.training.running_state import RunningState
from services.trainer.training.update import StepInput, single_update


@dataclass(frozen=True, slots=True)
class StepStats:
    """The statistics of a step. `losses` has those of the losses by name: see `losses.statistics`."""

    losses: Mapping[str, float]
    grad_norm: float
    lr: float
    kl_coefficient: float
    zero_variance_share: float
    collapsed_steps: int
    tokens: int
    micro_batches: int
    forward_backward_s: float
    optimizer_s: float

    def row(self) -> dict[str, float]:
        """All statistics in one flat dictionary, as in metrics.jsonl."""
        own = {name: getattr(self, name) for name in self.__slots__ if name != "losses"}
        return {**self.losses, **own}


def train_step(
    policy: Any,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[TraceGroup],
    *,
    step: int,
    settings: TrainerSettings,
    state: RunningState,
    dropped_zero_variance: int = 0,
    world: World = World(),  # noqa: B008 - without state
    dry_run: bool = False,
) -> tuple[StepStats, RunningState]:
    """Updates the policy on one batch: once (`update.single_update`), or as PPO does (`ppo.ppo_update`).

    Returns the statistics and the running state to commit. `policy` is a `Policy`, for PPO one with a value
    head. `dropped_zero_variance` is how many groups dynamic sampling dropped for this batch. With `dry_run`,
    everything is computed but the policy is not changed.

    Raises:
        ArithmeticError: an input, the loss or the gradient is not finite; the message names the groups.
    """
    started = time.perf_counter()
    coefficient = kl_coefficient(state.kl_controller, step=step, settings=settings)
    update = ppo_update if settings.objective == "ppo" else single_update
    inputs = StepInput(groups, step, settings, state.averages, coefficient, world, dry_run)
    stats = update(policy, optimizer, inputs)
    zero_variance = stats.batch.zero_variance + dropped_zero_variance
    share = zero_variance / (len(groups) + dropped_zero_variance)
    state = state.after(
        groups,
        step=step,
        coefficient=coefficient,
        kl=stats.losses.get("kl_reference"),
        zero_variance_share=share,
        settings=settings,
    )
    result = StepStats(
        losses=stats.losses,
        grad_norm=stats.grad_norm,
        lr=stats.lr,
        kl_coefficient=coefficient if settings.kl != "none" else 0.0,
        zero_variance_share=share,
        collapsed_steps=state.collapsed_steps,
        tokens=stats.batch.tokens,
        micro_batches=stats.micro_batches,
        forward_backward_s=time.perf_counter() - started - stats.optimizer_s,
        optimizer_s=stats.optimizer_s,
    )
    return result, state
