"""The coefficient of the KL penalty and its schedules. No torch.

The schedules adaptive and smooth keep a state, which is stored in the commit. The state is None before the
first step and for the other schedules.
"""

from dataclasses import dataclass

from services.trainer.settings import ObjectiveSettings

_FACTOR = 1.5
"""The step and the tolerance of the schedule adaptive, as in RookWorld's mini trainer."""

_GAIN = 0.1
_ERROR_LIMIT = 0.2
"""K and the clip of the schedule smooth (Ziegler et al., arXiv 1909.08593, section 2.2)."""

_SPAN = 30.0
"""The coefficient stays within this factor of its initial value. A new adapter has a KL of 0, so the
coefficient falls at first. Without a bound it would recover too late once the policy leaves its base."""


@dataclass(frozen=True, slots=True)
class Controlled:
    """`now` is the coefficient of the next step, `begun` the setting that it started from."""

    now: float
    begun: float


def coefficient(state: Controlled | None, *, step: int, settings: ObjectiveSettings) -> float:
    """Returns the coefficient of step `step`, counted from 0.

    The schedule warmup is linear and reaches the full value after `kl_warmup_steps`. A run that resumes with
    another `kl_coefficient` starts again from the new value.
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
    """Returns the state after a step with coefficient `now`; None for schedules without a state.

    `kl` is the KL that the step measured, in nats per token. If it is None, the state does not change.

    adaptive: x1.5 above 1.5 targets, /1.5 below target/1.5.
    smooth: times 1 + 0.1 clip(kl/target - 1, -0.2, 0.2). Ziegler et al. measure the KL of a whole sequence;
    here it is the mean per token.
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
