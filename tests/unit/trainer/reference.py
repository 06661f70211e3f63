"""The objectives and divergences in plain Python floats, each written from its paper's formula alone.

A completion is a list of tokens; a token is (log p, log p behaviour, advantage).
"""

import math
from collections.abc import Sequence
from typing import get_args

from rookery.config.objective import ObjectiveName

Token = tuple[float, float, float]
Completion = Sequence[Token]

OBJECTIVES = ("grpo", "dr-grpo", "dapo", "gspo", "cispo", "reinforce")
"""All but ppo, which needs a critic."""

assert {*OBJECTIVES, "ppo"} == set(get_args(ObjectiveName))


def ppo_clip(
    completions: Sequence[Completion], low: float, high: float, dual: float = math.inf
) -> list[list[float]]:
    """Each token's loss: arXiv 1707.06347 eq. 7, with a dual clip 1912.09729 eq. 5, negated."""
    return [[_clip(math.exp(p - b), a, low, high, dual) for p, b, a in tokens] for tokens in completions]


def gspo(
    completions: Sequence[Completion], low: float, high: float, dual: float = math.inf
) -> list[list[float]]:
    """Each token's loss, which is its completion's: arXiv 2507.18071 eq. 5 and 7, negated."""
    losses = []
    for tokens in completions:
        likelihood = math.prod(math.exp(p) for p, _, _ in tokens)
        behaviour = math.prod(math.exp(b) for _, b, _ in tokens)
        ratio = (likelihood / behaviour) ** (1 / len(tokens))
        losses.append([_clip(ratio, a, low, high, dual) for _, _, a in tokens])
    return losses


def truncated_reinforce(
    completions: Sequence[Completion], cap: float, at: Sequence[Completion] | None = None
) -> list[list[float]]:
    """Each token's loss: arXiv 2506.13585 eq. 4; `at` holds the point at which the stopped ratio is taken."""
    return [
        [-min(math.exp(p0 - b), cap) * a * p for (p, b, a), (p0, _, _) in zip(tokens, fixed, strict=True)]
        for tokens, fixed in zip(completions, at or completions, strict=True)
    ]


def token_mean(losses: Sequence[Sequence[float]]) -> float:
    """DAPO eq. 8: over all tokens."""
    return sum(map(sum, losses)) / sum(map(len, losses))


def sequence_mean(losses: Sequence[Sequence[float]]) -> float:
    """GRPO eq. 3: over the tokens of each completion, then over completions."""
    return sum(sum(row) / len(row) for row in losses) / len(losses)


def constant_mean(losses: Sequence[Sequence[float]], limit: int) -> float:
    """Dr. GRPO: a completion's sum over the constant token limit, then over completions."""
    return sum(sum(row) / limit for row in losses) / len(losses)


def divergence(kind: str, p: Sequence[float], q: Sequence[float]) -> float:
    """Of the policy p from the reference q, both probabilities over the vocabulary."""
    forward = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    reverse = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return {"policy_reference": forward, "reference_policy": reverse, "symmetric": (forward + reverse) / 2}[
        kind
    ]


def estimator(kind: str, p: float, q: float) -> float:
    """Schulman's k1, k2, k3 of one sampled token: p under the policy, q under the reference."""
    r = q / p
    return {"k1": -math.log(r), "k2": math.log(r) ** 2 / 2, "k3": (r - 1) - math.log(r)}[kind]


def _clip(ratio: float, advantage: float, low: float, high: float, dual: float) -> float:
    clipped = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    return -(clipped if advantage >= 0 else max(clipped, dual * advantage))
