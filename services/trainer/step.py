"""One training step on one batch of groups."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from rookery.trace import TraceGroup
from services.trainer import ppo
from services.trainer.batches.batch import prepare
from services.trainer.descent import Lesson, Method, once
from services.trainer.distributed.world import World
from services.trainer.learner import Learner
from services.trainer.losses.coefficient import coefficient
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class StepResult:
    """The statistics of a step. `learning` has those of the losses by name: see `losses.measures.summary`."""

    learning: Mapping[str, float]
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
        own = {name: getattr(self, name) for name in self.__slots__ if name != "learning"}
        return {**self.learning, **own}


def train_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[TraceGroup],
    *,
    step: int,
    settings: TrainerSettings,
    learner: Learner,
    dropped_zero_variance: int = 0,
    world: World = World(),  # noqa: B008 - without state
    rehearsal: bool = False,
) -> tuple[StepResult, Learner]:
    """Computes advantages and gradients, and updates the policy. PPO may make several passes over the batch.

    Returns the statistics and the learner to commit. `dropped_zero_variance` is how many groups dynamic
    sampling dropped for this batch. With `rehearsal`, everything is computed but the policy is not changed.

    Raises:
        ArithmeticError: an input, the loss or the gradient is not finite; the message names the groups.
    """
    started = time.perf_counter()
    batch = prepare(groups, version=step, settings=settings, averages=learner.averages)
    weight = coefficient(learner.kl_coefficient, step=step, settings=settings)
    method: Method = ppo.passes if settings.objective == "ppo" else once
    learned = method(policy, optimizer, Lesson(groups, batch, step, weight, settings, world, rehearsal))
    share = (batch.zero_variance + dropped_zero_variance) / (len(groups) + dropped_zero_variance)
    kl = learned.figures.get("kl_reference")
    learner = learner.after(
        groups, step=step, coefficient=weight, kl=kl, zero_variance_share=share, settings=settings
    )
    result = StepResult(
        learning=learned.figures,
        grad_norm=learned.grad_norm,
        lr=learned.lr,
        kl_coefficient=weight if settings.kl != "none" else 0.0,
        zero_variance_share=share,
        collapsed_steps=learner.collapsed_steps,
        tokens=batch.tokens,
        micro_batches=learned.micro_batches,
        forward_backward_s=time.perf_counter() - started - learned.optimizer_s,
        optimizer_s=learned.optimizer_s,
    )
    return result, learner
