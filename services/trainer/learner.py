"""What learning remembers from step to step beside weights and moments. It lies in the commit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from rookery.trace import TraceGroup
from services.trainer.advantages import Averages, updated
from services.trainer.collapse import collapsed_steps
from services.trainer.losses.coefficient import moved
from services.trainer.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True)
class Learner:
    """Immutable: a step returns its successor, which counts once the step is committed."""

    averages: Averages | None = None
    """Of the rewards: what the baselines ema and adaptive stand on."""
    kl_coefficient: float | None = None
    """Of the next step, under the schedules adaptive and smooth."""
    collapsed_steps: int = 0
    """See `collapse`."""

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
        """The successor after a step on `groups`.

        `coefficient` is the one the step used, `kl` the D(policy || base) it measured, where it did.
        """
        averages = self.averages
        if settings.baseline in ("ema", "adaptive"):
            rewards = [group.rewards for group in groups]
            averages = updated(averages, rewards, decay=settings.baseline_decay)
        return Learner(
            averages=averages,
            kl_coefficient=self.kl_coefficient
            if kl is None
            else moved(coefficient, kl=kl, settings=settings),
            collapsed_steps=collapsed_steps(
                self.collapsed_steps, share=zero_variance_share, step=step, settings=settings
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """For `state.json`; floats survive bit by bit."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> Self:
        """The inverse; a commit that has none begins anew."""
        if not state:
            return cls()
        averages = state["averages"]
        return cls(**{**state, "averages": Averages(**averages) if averages else None})
