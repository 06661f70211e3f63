"""The state of the training besides weights and Adam's moments. It is stored in each commit."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from rookery.trace import TraceGroup
from services.trainer.batches import finite
from services.trainer.batches.advantages import RewardAverages, updated_averages
from services.trainer.losses.kl import KlController, updated_controller
from services.trainer.settings import ObjectiveSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningState:
    """The state after a step. Immutable: a step returns a new one, which is valid once it is committed."""

    averages: RewardAverages | None = None
    """Moving averages of the rewards, for the baselines ema and adaptive."""
    kl_controller: KlController | None = None
    """The state of the KL schedules adaptive and smooth."""
    collapsed_steps: int = 0
    """Number of steps in a row in which rewards have collapsed: see `collapsed_steps`."""

    def after(
        self,
        groups: Sequence[TraceGroup],
        *,
        step: int,
        coefficient: float,
        kl: float | None,
        zero_variance_share: float,
        settings: ObjectiveSettings,
    ) -> "RunningState":
        """The state after a step on `groups`.

        `coefficient` is the KL coefficient that the step used, `kl` the D(policy || base) that it measured,
        or None. State that the settings do not use is dropped: later it would be of an outdated policy.

        Raises:
            ArithmeticError: the schedule needs `kl`, and it is not finite; the message names the groups.
        """
        averages = None
        if settings.baseline in ("ema", "adaptive"):
            rewards = [group.rewards for group in groups]
            averages = updated_averages(self.averages, rewards, decay=settings.baseline_decay)
        if settings.kl_schedule in ("adaptive", "smooth") and kl is not None:
            finite.check_divergence(kl, groups, step=step)
        return RunningState(
            averages=averages,
            kl_controller=updated_controller(self.kl_controller, coefficient, kl=kl, settings=settings),
            collapsed_steps=collapsed_steps(
                self.collapsed_steps, share=zero_variance_share, step=step, settings=settings
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """The state for `state.json`. Floats are preserved exactly."""
        return {
            "averages": asdict(self.averages) if self.averages else None,
            "kl_coefficient": asdict(self.kl_controller) if self.kl_controller else None,
            "collapsed_steps": self.collapsed_steps,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> Self:
        """The inverse of `as_json`. A commit without a state gives a new one."""
        if not state:
            return cls()
        averages, controller = state["averages"], state["kl_coefficient"]
        return cls(
            averages=RewardAverages(**averages) if averages else None,
            kl_controller=KlController(**controller) if controller else None,
            collapsed_steps=state["collapsed_steps"],
        )


def collapsed_steps(before: int, *, share: float, step: int, settings: ObjectiveSettings) -> int:
    """Returns the number of consecutive collapsed steps, up to and including this one.

    A collapsed policy always gives the same answer: groups whose rewards are all equal teach nothing. A step
    is collapsed if at least `collapse_share` of its groups are such; `share` is that of this step, including
    the groups that dynamic sampling dropped. `before` is the number of consecutive collapsed steps before it.
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
