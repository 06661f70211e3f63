"""Advantages relative to a group: of GRPO (arXiv 2402.03300, section 4.1.2) and RLOO (2402.14740, eq. 8).

Of episodes with several turns, the return from each turn on is compared with those of the other episodes from
the turn of the same number and role on, or from their last one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import NamedTuple

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


class TurnReward(NamedTuple):
    """What a turn is paid: by its verdict, and by the environment; and the role that it was played in."""

    verdict: float
    paid: float = 0.0
    role: str = ""


@dataclass(frozen=True, slots=True)
class ComparedReturns:
    """The returns that are compared with each other: from the turn of one number and role on, of all episodes
    that have the role. `turns` are their turns, counted through all episodes: None if the episode ended
    before, so that its return is that of its last turn."""

    role: str
    returns: list[float]
    turns: list[int | None]


def compared_returns(
    episodes: Sequence[Sequence[TurnReward]], *, mean: bool = False
) -> list[ComparedReturns]:
    """Returns the returns of a group's episodes, as they are compared.

    The return from a turn on is the sum of what the role is paid from it on. With `mean`, it is the mean of
    the verdicts and the sum of the payments of the environment, so that it does not grow with the number of
    turns.

    >>> white, black = (TurnReward(1.0, role="white"), TurnReward(0.5, paid=1.0, role="black"))
    >>> [(peers.returns, peers.turns) for peers in compared_returns([[white, black, white], [white, black]])]
    [([2.0, 1.0], [0, 3]), ([1.0, 1.0], [2, None]), ([1.5, 1.5], [1, 4])]
    >>> compared_returns([[white, black, white]], mean=True)[0].returns
    [1.0]
    """
    numbers = count()
    by_role: dict[str, list[tuple[list[int], list[float]]]] = {}
    for episode in episodes:
        turns_by_role: dict[str, list[tuple[int, TurnReward]]] = {}
        for turn in episode:
            turns_by_role.setdefault(turn.role, []).append((next(numbers), turn))
        for role, turns in turns_by_role.items():
            returns = _returns([turn for _, turn in turns], mean=mean)
            by_role.setdefault(role, []).append(([number for number, _ in turns], returns))
    return [
        ComparedReturns(
            role,
            [returns[min(turn, len(returns) - 1)] for _, returns in parts],
            [turns[turn] if turn < len(turns) else None for turns, _ in parts],
        )
        for role, parts in by_role.items()
        for turn in range(max(len(turns) for turns, _ in parts))
    ]


def _returns(turns: Sequence[TurnReward], *, mean: bool) -> list[float]:
    """Those from each turn on. Sums have 12 digits: floats that only differ by their order are equal."""
    if len(turns) == 1:
        return [turns[0].verdict + turns[0].paid]
    verdicts = list(accumulate(turn.verdict for turn in reversed(turns)))
    paid = accumulate(turn.paid for turn in reversed(turns))
    if mean:
        verdicts = [total / number for number, total in enumerate(verdicts, start=1)]
    return [round(verdict + payment, 12) for verdict, payment in zip(verdicts, paid, strict=True)][::-1]


def in_order_of_turns(peers: Sequence[ComparedReturns], values: Sequence[Sequence[float]]) -> list[float]:
    """Returns the values of the returns of `peers` in the order of the turns."""
    by_turn = {
        turn: value
        for compared, of_peers in zip(peers, values, strict=True)
        for turn, value in zip(compared.turns, of_peers, strict=True)
        if turn is not None
    }
    return [by_turn[turn] for turn in sorted(by_turn)]


def without_signal(episodes: Sequence[Sequence[TurnReward]], *, mean: bool = False) -> bool:
    """Returns whether all returns of a group that are compared are equal, so that all advantages are 0."""
    return all(zero_variance(peers.returns) for peers in compared_returns(episodes, mean=mean))
