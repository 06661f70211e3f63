"""Computes advantages: of completions from the rewards of groups, or of tokens from a critic (PPO). No torch.

With r a reward, m the mean of its group, G the group's size and e a moving average over steps:

    none            r                              PPO, whose critic is the baseline
    group-mean      r - m                          GRPO (arXiv 2402.03300, section 4.1.2)
    leave-one-out   r - mean of the other G - 1    RLOO (2402.14740, eq. 8): independent of r, so unbiased
    ema             r - e                          Williams 1992: also learns from groups of equal rewards
    adaptive        r - (1 - s) (mean of the others) - s e: shrinks a noisy mean towards e

adaptive is the shrinkage baseline of arXiv 2511.03710 with e in place of the batch's other groups. The
share s is v / (v + b): v is the variance of a mean of G - 1 rewards, and b is the variance of the groups'
true means about e. Both come from moving averages over the previous steps, so that no reward moves its own
baseline. The first step has no previous steps and uses its own rewards.

An episode of several turns has an advantage for each turn t. Then r is the return from t on, R_t = r_t +
r_(t+1) + ... to the last turn, and the group's rewards are the R_t of all its episodes; an episode that ended
before t counts with the return of its last turn. So there is a baseline for each number of a turn, and
leave-one-out is unbiased: what the other episodes return does not depend on this one's tokens. If the turns
are those of players in several roles, as in self-play, each role has its own t, R_t, group and moving average
e: role-conditioned advantages as in SPIRAL (2506.24119, eq. 4).

gae is generalised advantage estimation over the tokens of one completion: Schulman et al. 2016
(arXiv 1506.02438), eq. 16. With d_t = r_t + gamma V_(t+1) - V_t,

    A_t = d_t + (gamma lambda) d_(t+1) + (gamma lambda)^2 d_(t+2) + ...

V_t is the value of the tokens before token t. After the last token the episode is over and V is 0. lambda 0
bootstraps from the values; lambda 1 uses the rewards, with the values only as a baseline. If r is already
relative to the group (PPO with the baseline group-mean, for example), the critic learns what is left of it
after each token. With gamma and lambda 1 and a critic that is 0, the advantages are those of GRPO.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Self

from rookery.advantages import EPSILON, ComparedReturns, group_advantages, leave_one_out
from rookery.config.objective import Baseline


@dataclass(frozen=True, slots=True)
class RewardAverages:
    """Moving averages over steps, stored in the commit.

    `mean` is the mean reward, and `within` the variance of rewards within groups. `between` is the mean
    squared distance of the groups' means from `mean`; it contains part of `within`. `roles` are those of the
    turns of each role, if there are roles.
    """

    mean: float
    within: float
    between: float
    roles: "Mapping[str, RewardAverages]" = field(default_factory=dict)

    def of(self, role: str) -> "RewardAverages | None":
        """Those for turns of a role. None if there were no such turns yet."""
        return self.roles.get(role) if self.roles else self if not role else None

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `asdict`."""
        roles = {role: cls.of_json(of_role) for role, of_role in values.get("roles", {}).items()}
        return cls(**{**values, "roles": roles})

    def shrinkage(self, size: int) -> float:
        """The weight of the moving average in the baseline of a group of `size`, in [0, 1]."""
        noise = self.within / max(1, size - 1)
        between = max(0.0, self.between - self.within / size)
        if size == 1:
            return 1.0
        # If rewards never vary, both are zero: there is no noise to shrink.
        return noise / (noise + between) if noise else 0.0


def advantages(
    groups: Sequence[Sequence[float]],
    *,
    baseline: Baseline,
    normalise: bool,
    averages: RewardAverages | None,
    sigma_floor: float = 0.0,
) -> list[tuple[float, ...]]:
    """Returns the advantages of each group's rewards.

    `averages` are the moving averages of the previous steps, None at the first step. `normalise` divides by
    the group's standard deviation. For ema and adaptive, which also learn from groups of equal rewards, it
    divides by the root mean square of all rewards' distances from the moving average. A divisor below
    `sigma_floor` is replaced by it.
    """
    if baseline == "none":
        return [tuple(rewards) for rewards in groups]
    if baseline == "group-mean":
        return [group_advantages(rewards, normalise=normalise, sigma_floor=sigma_floor) for rewards in groups]
    if baseline == "leave-one-out":
        return [leave_one_out(rewards, normalise=normalise, sigma_floor=sigma_floor) for rewards in groups]
    averages = averages or _observe(groups)
    share = {"ema": lambda _: 1.0, "adaptive": averages.shrinkage}[baseline]
    scale = 1.0
    if normalise:
        squares = [(reward - averages.mean) ** 2 for rewards in groups for reward in rewards]
        scale = max(math.sqrt(fmean(squares)), sigma_floor) + EPSILON
    return [
        tuple(value / scale for value in _minus_baseline(rewards, averages.mean, share(len(rewards))))
        for rewards in groups
    ]


def updated_averages(
    averages: RewardAverages | None, groups: Sequence[Sequence[float]], *, decay: float
) -> RewardAverages:
    """Returns the averages after a step on `groups`.

    >>> updated_averages(RewardAverages(1.0, 0.0, 0.0), [[0.0, 0.0]], decay=0.5)
    RewardAverages(mean=0.5, within=0.0, between=0.5, roles={})
    """
    if averages is None:
        return _observe(groups)
    observed = _observe(groups, about=averages.mean)
    old_share, new_share = decay, 1.0 - decay
    return RewardAverages(
        mean=old_share * averages.mean + new_share * observed.mean,
        within=old_share * averages.within + new_share * observed.within,
        between=old_share * averages.between + new_share * observed.between,
    )


def averages_by_role(
    averages: RewardAverages | None, groups: Sequence[ComparedReturns], *, decay: float
) -> RewardAverages:
    """Returns the averages after a step on all returns, and those of each role."""
    by_role: dict[str, list[list[float]]] = {}
    for peers in groups:
        by_role.setdefault(peers.role, []).append(peers.returns)
    every = updated_averages(averages, [peers.returns for peers in groups], decay=decay)
    before = dict(averages.roles) if averages else {}
    if not before and set(by_role) <= {""}:
        return every
    if averages and not before:  # so far, there were turns without a role alone
        before[""] = averages
    after = {role: updated_averages(before.get(role), of, decay=decay) for role, of in by_role.items()}
    return replace(every, roles={**before, **after})


def _observe(groups: Sequence[Sequence[float]], *, about: float | None = None) -> RewardAverages:
    """Returns the figures of one batch. Distances are measured from `about`, or from its mean if None."""
    mean = fmean([reward for rewards in groups for reward in rewards])
    centre = mean if about is None else about
    return RewardAverages(
        mean=mean,
        within=fmean([_variance(rewards) for rewards in groups]),
        between=fmean([(fmean(rewards) - centre) ** 2 for rewards in groups]),
    )


def _minus_baseline(rewards: Sequence[float], average: float, share: float) -> tuple[float, ...]:
    """Returns each reward minus the baseline: (1 - share) x the mean of the others + share x the average."""
    total, others = math.fsum(rewards), max(1, len(rewards) - 1)
    return tuple(r - (1.0 - share) * (total - r) / others - share * average for r in rewards)


def _variance(rewards: Sequence[float]) -> float:
    """Returns the unbiased variance; 0 for a single reward."""
    mean = fmean(rewards)
    return math.fsum((r - mean) ** 2 for r in rewards) / max(1, len(rewards) - 1)


def gae(rewards: Sequence[float], values: Sequence[float], *, gamma: float, lambda_: float) -> list[float]:
    """Returns the advantage of each token. Advantage + value is the return, the target of the value.

    >>> gae([0.0, 1.0], [0.5, 0.5], gamma=1.0, lambda_=1.0)
    [0.5, 0.5]
    >>> gae([0.0, 1.0], [0.5, 0.75], gamma=1.0, lambda_=0.0)
    [0.25, 0.25]
    """
    advantages: list[float] = []
    advantage = next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + gamma * next_value - value + gamma * lambda_ * advantage
        next_value = value
        advantages.append(advantage)
    return advantages[::-1]


def token_rewards(reward: float, penalties: Sequence[float], *, coefficient: float) -> list[float]:
    """Returns the reward of each token: minus its KL penalty, plus the verdict's reward on the last token.

    As in RLHF (Ouyang et al. 2022, arXiv 2203.02155, eq. 2). `penalties` are log p - log p_base.

    >>> token_rewards(1.0, [0.5, -0.5], coefficient=0.1)
    [-0.05, 1.05]
    """
    rewards = [-coefficient * penalty for penalty in penalties]
    rewards[-1] += reward
    return rewards
