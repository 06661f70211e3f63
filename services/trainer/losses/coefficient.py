"""The weight of the KL penalty, and how it moves. No torch.

The schedules adaptive and smooth keep a state, which lies in the commit. None: no step was made yet, or the
schedule keeps none.
"""

from dataclasses import dataclass

from services.trainer.settings import ObjectiveSettings

_FACTOR = 1.5
"""Of the schedule adaptive, both for the step and for the tolerance: RookWorld's mini trainer."""

_GAIN = 0.1
_ERROR_LIMIT = 0.2
"""K and the clip of the schedule smooth (Ziegler et al., arXiv 1909.08593, section 2.2)."""

_SPAN = 30.0
"""The coefficient stays within this factor of where it began. A new adapter has no KL at all, so it falls
at first; from further down it would come back too late when the policy begins to leave its base."""


@dataclass(frozen=True, slots=True)
class Controlled:
    """The coefficient of the next step, and the setting that it began from."""

    now: float
    begun: float


def coefficient(state: Controlled | None, *, step: int, settings: ObjectiveSettings) -> float:
    """Of step `step`, counted from 0.

    The schedule warmup is linear and reaches the full value after `kl_warmup_steps`. A run that resumes with
    another `kl_coefficient` begins from that one again.
    """
    full = settings.kl_coefficient
    if settings.kl_schedule == "warmup":
        return full * min(1.0, (step + 1) / (settings.kl_warmup_steps + 1))
    if settings.kl_schedule == "fixed" or state is None or state.begun != full:
        return full
    return state.now


def moved(
    state: Controlled | None, now: float, *, kl: float | None, settings: ObjectiveSettings
) -> Controlled | None:
    """The state after a step with coefficient `now` that measured `kl` nats a token, or no KL: then it stays.

    adaptive: x1.5 above 1.5 targets, /1.5 below target/1.5.
    smooth: times 1 + 0.1 clip(kl/target - 1, -0.2, 0.2). Ziegler et al. measure a whole sequence's KL; here
    it is the mean a token.
    """
    schedule, target = settings.kl_schedule, settings.kl_target
    if schedule not in ("adaptive", "smooth"):
        return None
    if kl is None:
        return state
    factor = _smooth(kl / target) if schedule == "smooth" else _adaptive(kl / target)
    full = settings.kl_coefficient
    return Controlled(min(max(now * factor, full / _SPAN), full * _SPAN), full)


def _adaptive(relative: float) -> float:
    if relative > _FACTOR:
        return _FACTOR
    return 1 / _FACTOR if relative < 1 / _FACTOR else 1.0


def _smooth(relative: float) -> float:
    return 1.0 + _GAIN * min(max(relative - 1.0, -_ERROR_LIMIT), _ERROR_LIMIT)
