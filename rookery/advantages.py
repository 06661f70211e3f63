"""Advantages relative to a group: of GRPO (arXiv 2402.03300, section 4.1.2) and RLOO (2402.14740, eq. 8).

Of episodes with several turns, the return from each turn on is compared with those of the other episodes from
the turn of the same number on, or from their last one.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

EPSILON = 1e-4
"""Added to the standard deviation, as in GRPO's implementations (DeepSeekMath, arXiv 2402.03300)."""


def group_advantages(
    rewards: Sequence[float], *, normalise: bool, sigma_floor: float = 0.0
) -> tuple[float, ...]:
    """Returns each reward minus the group's mean, divided by its standard deviation if `normalise` is set.

    A standard deviation below `sigma_floor` is replaced by it, because dividing by it would give the noise of
    nearly equal rewards the weight of a real difference. If all rewards of the group are equal, all
    advantages are 0.

    >>> group_advantages([0.0, 1.0], normalise=False)
    (-0.5, 0.5)
    >>> group_advantages([0.3, 0.3, 0.3], normalise=True)
    (0.0, 0.0, 0.0)
    """
    if zero_variance(rewards):
        return (0.0,) * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if not normalise:
        return tuple(centred)
    deviation = math.sqrt(math.fsum(c * c for c in centred) / len(centred))
    return tuple(c / (max(deviation, sigma_floor) + EPSILON) for c in centred)


def leave_one_out(
    rewards: Sequence[float], *, normalise: bool, sigma_floor: float = 0.0
) -> tuple[float, ...]:
    """Returns each reward minus the mean of the others: G / (G - 1) times its distance from the group's mean.

    >>> leave_one_out([0.0, 0.5, 1.0], normalise=False)
    (-0.75, 0.0, 0.75)
    """
    factor = len(rewards) / max(1, len(rewards) - 1)
    values = group_advantages(rewards, normalise=normalise, sigma_floor=sigma_floor)
    return tuple(factor * value for value in values)


def zero_variance(rewards: Sequence[float]) -> bool:
    """Returns whether all rewards of a group are equal."""
    return min(rewards) == max(rewards)


def returns_to_go(episodes: Sequence[Sequence[float]]) -> list[list[float]]:
    """Returns for each number of a turn the returns of all episodes from it on, or from their last turn on.

    With the reward r_t of turn t, the return from t on is r_t + r_(t+1) + ... up to the last turn.

    >>> returns_to_go([[0.0, 1.0], [0.5]])
    [[1.0, 0.5], [1.0, 0.5]]
    """
    returns = [list(accumulate(reversed(rewards)))[::-1] for rewards in episodes]
    turns = range(max(map(len, returns)))
    return [[episode[min(turn, len(episode) - 1)] for episode in returns] for turn in turns]


def in_order_of_turns(by_number: Sequence[Sequence[float]], lengths: Sequence[int]) -> list[float]:
    """Returns values in the order of `returns_to_go` in that of the turns. `lengths` are the episodes'.

    >>> in_order_of_turns([[1.0, 0.5], [2.0, 0.5]], [2, 1])
    [1.0, 2.0, 0.5]
    """
    return [by_number[turn][episode] for episode, length in enumerate(lengths) for turn in range(length)]
