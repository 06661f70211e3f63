"""From a batch to a moved policy: the gradient over micro-batches, summed over processes, and Adam's step."""

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
    """A batch and all that its gradient depends on beside the weights."""

    groups: Sequence[TraceGroup]
    batch: Batch
    step: int
    kl_coefficient: float
    settings: TrainerSettings
    world: World
    rehearsal: bool = False
    """Everything but the optimizer's step."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What the optimizer's steps on a lesson measured.

    `figures` has the losses' by name: see `losses.measures.summary`. `optimizer_s` is part of the seconds
    that the lesson took.
    """

    figures: Mapping[str, float]
    grad_norm: float
    lr: float
    micro_batches: int
    optimizer_s: float


Method: TypeAlias = Callable[[Any, torch.optim.Optimizer, Lesson], Learned]
"""Moves a policy on a lesson."""


class Movable(Protocol):
    """Something with weights to move."""

    @property
    def parameters(self) -> list[torch.nn.Parameter]: ...


@dataclass(frozen=True, slots=True)
class Moved:
    """One step of the optimizer."""

    grad_norm: float
    lr: float
    seconds: float


def once(policy: Policy, optimizer: torch.optim.Optimizer, lesson: Lesson) -> Learned:
    """The gradient of the whole batch, then one step.

    Raises:
        ArithmeticError: the loss or the gradient is not finite; it names the groups.
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
    """The measures of all processes' micro-batches, in the order of `Deal.cuts`."""
    return [Measures.of(part) for part in world.gather([measures.read().as_json() for measures in pending])]


def move(policy: Movable, optimizer: torch.optim.Optimizer, lesson: Lesson) -> Moved:
    """One step of the optimizer along the clipped gradient of all processes.

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
