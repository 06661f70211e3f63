"""The weight of the entropy bonus: fixed, or adapted so that the entropy does not stay below a target.

The bonus adds c H to the objective, where H is the entropy of the next token in nats, exact over the whole
vocabulary at the prefixes of the batch. With a target H0, c is a proportional-integral controller:

    I <- clip(I + rate (H0 - H), 0, 10)
    c <- clip(I + 30 rate (H0 - H), 0, 10)

I alone is dual ascent for the constraint H >= H0 (as for the temperature of soft actor-critic, arXiv
1812.05905, section 5). It oscillates: the gradient of H vanishes when the policy is nearly certain, so H
answers late. The proportional part damps that; 30 settles bandits of several learning rates (test_bandit).
"""

from dataclasses import dataclass

from services.trainer.settings import ObjectiveSettings

_DAMPING = 30.0
_MOST = 10.0
"""Bounds the coefficient if the target cannot be reached. Advantages have a standard deviation of about 1."""


@dataclass(frozen=True, slots=True)
class EntropyController:
    """The state of the controller, which each commit stores.

    `now` is the coefficient of the next step, `begun` the setting that `integral` started from.
    """

    integral: float
    now: float
    begun: float


def entropy_coefficient(state: EntropyController | None, *, settings: ObjectiveSettings) -> float:
    """Returns the coefficient of a step. `state` is that of the previous step, None before the first one.

    A run that resumes with another `entropy_coefficient` starts again from the new value.
    """
    begun = settings.entropy_coefficient
    return begun if state is None or state.begun != begun or not settings.entropy_target else state.now


def updated_entropy_controller(
    state: EntropyController | None, *, entropy: float | None, settings: ObjectiveSettings
) -> EntropyController | None:
    """Returns the state after a step that measured `entropy`, in nats per token; None without a target.

    If `entropy` is None, the step had no tokens, and the state does not change.
    """
    if not settings.entropy_target:
        return None
    if entropy is None:
        return state
    begun = settings.entropy_coefficient
    before = begun if state is None or state.begun != begun else state.integral
    change = settings.entropy_rate * (settings.entropy_target - entropy)
    integral = min(max(before + change, 0.0), _MOST)
    return EntropyController(integral, min(max(integral + _DAMPING * change, 0.0), _MOST), begun)
