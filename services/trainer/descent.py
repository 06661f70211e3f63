"""Gradient descent on a batch: sums the gradient over micro-batches and processes, and makes Adam's step."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from rookery.trace import TraceGroup
from services.trainer import optimizer as adam
from services.trainer import schedule
from services.trainer.batches import finite
from services.trainer.batches.batch import Batch
from services.trainer.batches.tensors import collate
from services.trainer.distributed.sharding import whole
from services.trainer.distributed.world import World
from services.trainer.losses.measures import Measures, Pending, summary
from services.trainer.losses.objective import Objective
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class Lesson:
    """A batch and everything else that its gradient depends on, except the weights."""

    groups: Sequence[TraceGroup]
    batch: Batch
    step: int
    kl_coefficient: float
    settings: TrainerSettings
    world: World
    rehearsal: bool = False
    """Whether to leave out the optimizer's step."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The statistics of the optimizer steps on a lesson.

    `figures` has those of the losses by name: see `losses.measures.summary`. `optimizer_s` is the part of the
    time that the optimizer took.
    """

    figures: Mapping[str, float]
    grad_norm: float
    lr: float
    micro_batches: int
    optimizer_s: float


Method: TypeAlias = Callable[[Any, torch.optim.Optimizer, Lesson], Learned]
"""A function that updates a policy on a lesson."""


class Movable(Protocol):
    """Something with trainable parameters."""

    @property
    def parameters(self) -> list[torch.nn.Parameter]: ...


@dataclass(frozen=True, slots=True)
class Moved:
    """The statistics of one optimizer step."""

    grad_norm: float
    lr: float
    seconds: float


def once(policy: Policy, optimizer: torch.optim.Optimizer, lesson: Lesson) -> Learned:
    """Computes the gradient of the whole batch, then makes one optimizer step.

    Raises:
        ArithmeticError: the loss or the gradient is not finite; the message names the groups.
    """
    settings, world = lesson.settings, lesson.world
    objective = Objective.of(settings, coefficient=lesson.kl_coefficient, normaliser=lesson.batch.normaliser)
    deal = world.deal(lesson.batch.rows, tokens=settings.micro_batch_tokens)
    pending: list[Pending] = []
    for turn in deal.turns:
        tensors = collate(turn.rows, device=policy.device)
        scores = policy.score(tensors, wanted=objective.wanted, reference=settings.measures_kl(lesson.step))
        loss, measures = objective(scores, tensors)
        (turn.weight * loss).backward()
        if turn.weight:
            pending.append(measures)
    parts = gathered(pending, world)
    finite.check_losses([part.loss for part in parts], deal.cuts, step=lesson.step)
    moved = move(policy, optimizer, lesson)
    return Learned(summary(parts), moved.grad_norm, moved.lr, len(parts), moved.seconds)


def gathered(pending: Sequence[Pending], world: World) -> list[Measures]:
    """The measures of the micro-batches of all processes, in the order of `Deal.cuts`."""
    return [Measures.of(part) for part in world.gather([measures.read().as_json() for measures in pending])]


def move(policy: Movable, optimizer: torch.optim.Optimizer, lesson: Lesson) -> Moved:
    """Makes one optimizer step with the clipped sum of the gradients of all processes.

    Raises:
        ArithmeticError: the gradient is not finite; the message names the groups.
    """
    started = time.perf_counter()
    settings, step = lesson.settings, lesson.step
    lr = settings.lr * schedule.share(
        settings.lr_schedule, step=step, steps=settings.max_steps, warmup=settings.warmup_steps
    )
    adam.set_lr(optimizer, lr)
    lesson.world.sum_gradients(policy.parameters)
    norm = whole(torch.nn.utils.clip_grad_norm_(policy.parameters, settings.max_grad_norm))
    if not torch.isfinite(norm):
        names = ", ".join(group.id for group in lesson.groups)
        raise ArithmeticError(f"step {step}: gradient norm is {norm.item()}; the batch holds groups {names}")
    if not lesson.rehearsal:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Moved(norm.item(), lr, time.perf_counter() - started)
