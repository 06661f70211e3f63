"""The state of the training besides weights and Adam's moments. It is stored in each commit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from rookery.trace import TraceGroup
from services.trainer.batches import finite
from services.trainer.batches.advantages import Averages, updated
from services.trainer.batches.collapse import collapsed_steps
from services.trainer.losses.coefficient import Controlled, moved
from services.trainer.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True)
class Learner:
    """The state after a step. Immutable: a step returns a new one, which is valid once it is committed."""

    averages: Averages | None = None
    """Moving averages of the rewards, for the baselines ema and adaptive."""
    kl_coefficient: Controlled | None = None
    """The KL coefficient of the schedules adaptive and smooth."""
    collapsed_steps: int = 0
    """Number of steps in a row in which rewards have collapsed. See `collapse`."""

    def after(
        self,
        groups: Sequence[TraceGroup],
        *,
        step: int,
        coefficient: float,
        kl: float | None,
        zero_variance_share: float,
        settings: ObjectiveSettings,
    ) -> "Learner":
        """The state after a step on `groups`.

        `coefficient` is the KL coefficient that the step used, `kl` the D(policy || base) that it measured,
        or None. State that the settings do not use is dropped: later it would be of an outdated policy.

        Raises:
            ArithmeticError: the schedule needs `kl`, and it is not finite; the message names the groups.
        """
        averages = None
        if settings.baseline in ("ema", "adaptive"):
            rewards = [group.rewards for group in groups]
            averages = updated(self.averages, rewards, decay=settings.baseline_decay)
        if settings.kl_schedule in ("adaptive", "smooth") and kl is not None:
            finite.check_divergence(kl, groups, step=step)
        return Learner(
            averages=averages,
            kl_coefficient=moved(self.kl_coefficient, coefficient, kl=kl, settings=settings),
            collapsed_steps=collapsed_steps(
                self.collapsed_steps, share=zero_variance_share, step=step, settings=settings
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """The state for `state.json`. Floats are preserved exactly."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> Self:
        """The inverse of `as_json`. A commit without a state gives a new one."""
        if not state:
            return cls()
        averages, controlled = state["averages"], state["kl_coefficient"]
        return cls(
            averages=Averages(**averages) if averages else None,
            kl_coefficient=Controlled(**controlled) if controlled else None,
            collapsed_steps=state["collapsed_steps"],
        )
