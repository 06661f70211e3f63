"""What learning remembers from step to step beside weights and moments. It lies in the commit."""

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
    """Immutable: a step returns its successor, which counts once the step is committed."""

    averages: Averages | None = None
    """Of the rewards: what the baselines ema and adaptive stand on."""
    kl_coefficient: Controlled | None = None
    """Under the schedules adaptive and smooth."""
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

        `coefficient` is the one the step used, `kl` the D(policy || base) it measured, where it did. What the
        settings do not use is forgotten: taken up again later, it would be of another policy.

        Raises:
            ArithmeticError: the coefficient would follow a `kl` that is not finite; it names the groups.
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
        """For `state.json`; floats survive bit by bit."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> Self:
        """The inverse; a commit that has none begins anew."""
        if not state:
            return cls()
        averages, controlled = state["averages"], state["kl_coefficient"]
        return cls(
            averages=Averages(**averages) if averages else None,
            kl_coefficient=Controlled(**controlled) if controlled else None,
            collapsed_steps=state["collapsed_steps"],
        )
