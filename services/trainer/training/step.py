"""One training step: an update of the policy on one batch of groups, and the running state around it.

The running state is the state of the training besides weights and Adam's moments. Each commit stores it.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

import torch

from rookery.advantages import compared_returns, without_signal
from rookery.config.objective import ObjectiveSettings
from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.batches.advantages import RewardAverages, averages_by_role
from services.trainer.distributed.process_group import World
from services.trainer.losses.regularisers import (
    EntropyController,
    KlController,
    entropy_coefficient,
    kl_coefficient,
    updated_controller,
    updated_entropy_controller,
)
from services.trainer.training.ppo import ppo_update
from services.trainer.training.update import StepInput, UpdateStats, single_update

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningState:
    """The state after a step. Immutable: a step returns a new one, which is valid once it is committed."""

    averages: RewardAverages | None = None
    """Moving averages of the rewards, for the baselines ema and adaptive."""
    kl_controller: KlController | None = None
    """The state of the KL schedules adaptive and smooth."""
    entropy_controller: EntropyController | None = None
    """The state of the entropy bonus, if there is a target."""
    collapsed_steps: int = 0
    """Number of steps in a row in which rewards have collapsed: see `collapsed_steps`."""

    def after(
        self,
        groups: Sequence[TraceGroup],
        stats: "StepStats",
        *,
        step: int,
        zero_variance_share: float,
        settings: ObjectiveSettings,
    ) -> "RunningState":
        """The state after step `step` on `groups`, which had `stats`. State that the settings do not use is
        dropped, because it would be outdated when used again."""
        averages = None
        if settings.baseline in ("ema", "adaptive"):
            mean = settings.turn_rewards == "mean"
            returns = [peers for group in groups for peers in compared_returns(group.turn_rewards, mean=mean)]
            averages = averages_by_role(self.averages, returns, decay=settings.baseline_decay)
        kl = stats.losses.get("kl_reference")
        return RunningState(
            averages=averages,
            kl_controller=updated_controller(
                self.kl_controller, stats.kl_coefficient, kl=kl, settings=settings
            ),
            entropy_controller=updated_entropy_controller(
                self.entropy_controller, entropy=stats.losses.get("entropy"), settings=settings
            ),
            collapsed_steps=collapsed_steps(
                self.collapsed_steps, share=zero_variance_share, step=step, settings=settings
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """The state for `state.json`. Floats are preserved exactly."""
        return {
            "averages": asdict(self.averages) if self.averages else None,
            "kl_coefficient": asdict(self.kl_controller) if self.kl_controller else None,
            "entropy_coefficient": asdict(self.entropy_controller) if self.entropy_controller else None,
            "collapsed_steps": self.collapsed_steps,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> Self:
        """The inverse of `as_json`. A commit without a state gives a new one."""
        if not state:
            return cls()
        averages, controller = state["averages"], state["kl_coefficient"]
        entropy = state.get("entropy_coefficient")  # absent in commits of earlier versions
        return cls(
            averages=RewardAverages.of_json(averages) if averages else None,
            kl_controller=KlController(**controller) if controller else None,
            entropy_controller=EntropyController(**entropy) if entropy else None,
            collapsed_steps=state["collapsed_steps"],
        )


def collapsed_steps(before: int, *, share: float, step: int, settings: ObjectiveSettings) -> int:
    """Returns the number of consecutive collapsed steps, up to and including this one.

    A collapsed policy always gives the same answer, so all rewards of a group are equal and there is nothing
    to learn. A step counts as collapsed if the `share` of such groups, including those that dynamic sampling
    dropped, is at least `collapse_share`. `before` is the number of consecutive collapsed steps before it.
    Logs an error at every multiple of `collapse_steps`. Like ART's fail-safe, but the run is not stopped.
    """
    if share < settings.collapse_share:
        return 0
    now = before + 1
    if now % settings.collapse_steps == 0:
        logger.error(
            "step %d: for %d steps in a row, %.0f%% or more of the groups had equal rewards",
            step, now, 100 * settings.collapse_share,
        )  # fmt: skip
    return now


def zero_variance_share(
    groups: Sequence[TraceGroup], *, dropped: int, turn_rewards: Literal["sum", "mean"]
) -> float:
    """The share of groups of equal returns, including those that dynamic sampling dropped for the batch."""
    equal = sum(without_signal(group.turn_rewards, mean=turn_rewards == "mean") for group in groups)
    return (equal + dropped) / (len(groups) + dropped)


@dataclass(frozen=True, slots=True)
class StepStats(UpdateStats):
    """The statistics of a step: those of its update, and its own."""

    kl_coefficient: float
    entropy_coefficient: float
    forward_backward_s: float

    def row(self, **collapse: float) -> dict[str, float]:
        """All statistics in one flat dictionary, as in metrics.jsonl, with those of the groups' collapse."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        del figures["losses"], figures["token_figures"]
        forward_backward_s = figures.pop("forward_backward_s")
        return {**self.losses, **figures, **collapse, "forward_backward_s": forward_backward_s}


def train_step(
    policy: Any,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[TraceGroup],
    *,
    step: int,
    settings: TrainerSettings,
    state: RunningState,
    world: World = World(),  # noqa: B008 - without state
    dry_run: bool = False,
) -> StepStats:
    """Updates the policy on one batch, with `update.single_update` or, for PPO, with `ppo.ppo_update`.

    `policy` is a `Policy`, for PPO one with a value head. `state` is the state before the step. With
    `dry_run`, everything is computed but the policy is not changed. Raises `ArithmeticError` if an input, the
    loss, the gradient or a KL that the schedule needs is not finite; the message names the groups.
    """
    started = time.perf_counter()
    inputs = StepInput(
        groups,
        step,
        settings,
        averages=state.averages,
        kl_coefficient=kl_coefficient(state.kl_controller, step=step, settings=settings),
        world=world,
        entropy_coefficient=entropy_coefficient(state.entropy_controller, settings=settings),
        dry_run=dry_run,
    )
    stats = (ppo_update if settings.objective == "ppo" else single_update)(policy, optimizer, inputs)
    kl = stats.losses.get("kl_reference", 0.0)
    if settings.kl_schedule in ("adaptive", "smooth") and not math.isfinite(kl):
        names = ", ".join(group.id for group in groups)
        raise ArithmeticError(f"step {step}: D(policy || base) is {kl!r}; the batch holds groups {names}")
    return StepStats(
        **{field.name: getattr(stats, field.name) for field in fields(stats)},
        kl_coefficient=inputs.kl_coefficient if settings.kl != "none" else 0.0,
        entropy_coefficient=inputs.entropy_coefficient,
        forward_backward_s=time.perf_counter() - started - stats.optimizer_s,
    )
