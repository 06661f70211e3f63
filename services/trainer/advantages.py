"""Rewards of a group to advantages. Pure arithmetic, no torch."""

import math
from collections.abc import Sequence

_EPSILON = 1e-4
"""Added to the standard deviation, as in GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1)."""


def group_advantages(rewards: Sequence[float], *, normalise: bool) -> tuple[float, ...]:
    """Reward minus the group's mean, over its standard deviation when `normalise` is set.

    A group whose rewards are all equal has nothing to teach: all zeros.

    >>> group_advantages([0.0, 1.0], normalise=False)
    (-0.5, 0.5)
    >>> group_advantages([0.3, 0.3, 0.3], normalise=True)
    (0.0, 0.0, 0.0)

    Raises:
        ValueError: a reward is not finite. NaN is never 0.
    """
    for index, reward in enumerate(rewards):
        if not math.isfinite(reward):
            raise ValueError(f"reward {index} is {reward!r}, not a number")
    if zero_variance(rewards):
        return (0.0,) * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if not normalise:
        return tuple(centred)
    deviation = math.sqrt(math.fsum(c * c for c in centred) / len(centred))
    return tuple(c / (deviation + _EPSILON) for c in centred)


def zero_variance(rewards: Sequence[float]) -> bool:
    """Whether all rewards of a group are the same number."""
    return min(rewards) == max(rewards)
