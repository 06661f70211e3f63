"""Generalised advantage estimation over the tokens of one completion. Pure arithmetic, no torch.

Schulman et al. 2016 (arXiv 1506.02438), eq. 16: with d_t = r_t + gamma V_(t+1) - V_t,

    A_t = d_t + (gamma lambda) d_(t+1) + (gamma lambda)^2 d_(t+2) + ...

V_t is the value of the tokens before token t. After the last token the episode is over and V is 0. lambda 0
bootstraps from the values; lambda 1 uses the rewards, with the values only as a baseline.
"""

from collections.abc import Sequence


def gae(rewards: Sequence[float], values: Sequence[float], *, gamma: float, lambda_: float) -> list[float]:
    """Returns the advantage of each token. Advantage + value is the return, the target of the value.

    >>> gae([0.0, 1.0], [0.5, 0.5], gamma=1.0, lambda_=1.0)
    [0.5, 0.5]
    >>> gae([0.0, 1.0], [0.5, 0.75], gamma=1.0, lambda_=0.0)
    [0.25, 0.25]
    """
    advantages: list[float] = []
    ahead = next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        ahead = reward + gamma * next_value - value + gamma * lambda_ * ahead
        next_value = value
        advantages.append(ahead)
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
