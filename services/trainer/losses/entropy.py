"""The weight of the entropy bonus: fixed, or adapted so that the entropy stays above a target.

The bonus adds c H to the objective, where H is the entropy of the next token in nats, exact over the whole
vocabulary at the prefixes of the batch. A target H0 makes c the multiplier of the constraint H >= H0, and
each step makes one step of dual ascent, as for the temperature of soft actor-critic (arXiv 1812.05905,
section 5):

    c <- clip(c + rate (H0 - H), 0, 1)

So the bonus grows while the entropy is below the target, and vanishes if the policy explores by itself.
"""

from services.trainer.losses.kl import CoefficientState
from services.trainer.settings import ObjectiveSettings

_MOST = 1.0
"""Bounds the coefficient if the target cannot be reached. Advantages have a standard deviation of about 1."""


def entropy_coefficient(state: CoefficientState | None, *, settings: ObjectiveSettings) -> float:
    """Returns the coefficient of a step. `state` is that of the previous step, None before the first one.

    A run that resumes with another `entropy_coefficient` starts again from the new value.
    """
    full = settings.entropy_coefficient
    return full if state is None or state.begun != full or not settings.entropy_target else state.now


def updated_entropy_state(
    state: CoefficientState | None, *, entropy: float | None, settings: ObjectiveSettings
) -> CoefficientState | None:
    """Returns the state after a step that measured `entropy`, in nats per token; None without a target.

    If `entropy` is None, the step had no tokens, and the state does not change.
    """
    if not settings.entropy_target:
        return None
    if entropy is None:
        return state
    now = entropy_coefficient(state, settings=settings)
    moved = now + settings.entropy_rate * (settings.entropy_target - entropy)
    return CoefficientState(min(max(moved, 0.0), _MOST), settings.entropy_coefficient)
