"""One optimizer step on one batch of groups."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from rookery.trace import TraceGroup
from services.trainer import finite, schedule
from services.trainer import optimizer as adam
from services.trainer.batch import prepare
from services.trainer.distributed.sharding import whole
from services.trainer.distributed.world import World
from services.trainer.learner import Learner
from services.trainer.losses.coefficient import coefficient
from services.trainer.losses.measures import Measures, Pending, summary
from services.trainer.losses.objective import Objective
from services.trainer.policy import Policy
from services.trainer.settings import TrainerSettings
from services.trainer.tensors import collate


class Movable(Protocol):
    """Something with weights to move."""

    @property
    def parameters(self) -> list[torch.nn.Parameter]: ...


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the step measured. `learning` has the losses' figures by name: see `losses.measures.summary`."""

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
        """All of it, flat, as metrics.jsonl has it."""
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
) -> tuple[StepResult, Learner]:
    """Accumulates the batch's gradient over micro-batches and moves the policy once.

    The learner that comes back is the one to commit. `dropped_zero_variance` counts the groups that dynamic
    sampling threw away for this batch.

    Raises:
        ArithmeticError: a number that came in, the loss or the gradient is not finite; it names the groups.
    """
    started = time.perf_counter()
    batch = prepare(groups, version=step, settings=settings, averages=learner.averages)
    weight = coefficient(learner.kl_coefficient, step=step, settings=settings)
    objective = Objective.of(settings, coefficient=weight, normaliser=batch.normaliser)
    deal = world.deal(batch.rows, tokens=settings.micro_batch_tokens)
    pending: list[Pending] = []
    for turn in deal.turns:
        tensors = collate(turn.rows, device=policy.device)
        scores = policy.score(tensors, wanted=objective.wanted, reference=settings.measures_kl(step))
        loss, measures = objective(scores, tensors)
        (turn.weight * loss).backward()
        if turn.weight:
            pending.append(measures)
    parts = gathered(pending, world)
    finite.check_losses([part.loss for part in parts], deal.cuts, step=step)
    computed = time.perf_counter()
    grad_norm, lr = move(policy, optimizer, groups, step=step, settings=settings, world=world)
    learning = summary(parts)
    share = (batch.zero_variance + dropped_zero_variance) / (len(groups) + dropped_zero_variance)
    kl = learning.get("kl_reference")
    learner = learner.after(
        groups, step=step, coefficient=weight, kl=kl, zero_variance_share=share, settings=settings
    )
    result = StepResult(
        learning=learning,
        grad_norm=grad_norm,
        lr=lr,
        kl_coefficient=weight if settings.kl != "none" else 0.0,
        zero_variance_share=share,
        collapsed_steps=learner.collapsed_steps,
        tokens=batch.tokens,
        micro_batches=len(parts),
        forward_backward_s=computed - started,
        optimizer_s=time.perf_counter() - computed,
    )
    return result, learner


def gathered(pending: Sequence[Pending], world: World) -> list[Measures]:
    """The measures of all processes' micro-batches, in the order of `Deal.cuts`."""
    return [Measures.of(part) for part in world.gather([measures.read().as_json() for measures in pending])]


def move(
    policy: Movable,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[TraceGroup],
    *,
    step: int,
    settings: TrainerSettings,
    world: World,
) -> tuple[float, float]:
    """One step of the optimizer along the clipped gradient of all processes; its norm, and the learning rate.

    Raises:
        ArithmeticError: the gradient is not finite; the message names the groups.
    """
    lr = settings.lr * schedule.share(
        settings.lr_schedule, step=step, steps=settings.max_steps, warmup=settings.warmup_steps
    )
    adam.set_lr(optimizer, lr)
    world.sum_gradients(policy.parameters)
    norm = whole(torch.nn.utils.clip_grad_norm_(policy.parameters, settings.max_grad_norm))
    if not torch.isfinite(norm):
        names = ", ".join(group.id for group in groups)
        raise ArithmeticError(f"step {step}: gradient norm is {norm.item()}; the batch holds groups {names}")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm.item(), lr
