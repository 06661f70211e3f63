"""Policy-gradient losses, one value a token, by the objective's name.

The behaviour policy is the one that sampled: its log-probabilities come from the server. With
r = exp(log p - log p under the behaviour policy) and A the advantage:

    grpo, dr-grpo, dapo   -min(r A, clip(r, 1 - low, 1 + high) A), and at most -dual A where A < 0
    gspo                  the same with one r a completion, the geometric mean of its tokens'
    cispo, reinforce      -stop_gradient(min(r, cap)) A log p

What sets grpo, dr-grpo and dapo apart is not here: the standard deviation in the advantage, the weights of
the tokens, which groups are trained on.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

_MAX_LOG_RATIO = 40.0
"""Far outside of what any clip lets through."""


@dataclass(frozen=True, slots=True)
class Range:
    """Where importance ratios end: clipped to [1 - low, 1 + high], or cut off above `cap`.

    `dual` is the bound of ratios under negative advantages, which the clip leaves unbounded; 0 is none.
    """

    low: float
    high: float
    cap: float
    dual: float = 0.0


@dataclass(frozen=True, slots=True)
class Surrogate:
    """One entry a token; only `losses_N` carries a gradient.

    `low_N`, `high_N` and `dual_N` tell where clipping stopped the gradient (ppo's clip), `high_N` also where
    it bounded the weight (cap).
    """

    losses_N: torch.Tensor
    ratio_N: torch.Tensor
    low_N: torch.Tensor
    high_N: torch.Tensor
    dual_N: torch.Tensor


SurrogateLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Range], Surrogate]
"""(logprobs_N, behaviour_N, advantages_N, completion_N, range) to losses; completion_N numbers the
completions of the micro-batch from 0, and a completion is never cut over two."""


def clipped(
    logprobs_N: torch.Tensor,
    behaviour_N: torch.Tensor,
    advantages_N: torch.Tensor,
    completion_N: torch.Tensor,
    bounds: Range,
) -> Surrogate:
    """PPO's clipped surrogate a token (arXiv 1707.06347, eq. 7), as GRPO has it (2402.03300, eq. 3).

    `low` and `high` differ since DAPO (2503.14476, eq. 8 and 10: clip-higher). Where A < 0 and r is large the
    loss -r A has no bound; dual clip gives it one (Ye et al., 1912.09729, eq. 5).
    """
    return _clip(_ratio(logprobs_N - behaviour_N), advantages_N, bounds)


def sequence_clipped(
    logprobs_N: torch.Tensor,
    behaviour_N: torch.Tensor,
    advantages_N: torch.Tensor,
    completion_N: torch.Tensor,
    bounds: Range,
) -> Surrogate:
    """GSPO: the ratio of a completion is the geometric mean of its tokens' (arXiv 2507.18071, eq. 5 and 7).

    Every token bears its completion's loss, so the weights `sequence` give the paper's mean over completions.
    """
    return _clip(_ratio(_geometric_mean(logprobs_N - behaviour_N, completion_N)), advantages_N, bounds)


def truncated(
    logprobs_N: torch.Tensor,
    behaviour_N: torch.Tensor,
    advantages_N: torch.Tensor,
    completion_N: torch.Tensor,
    bounds: Range,
) -> Surrogate:
    """REINFORCE with importance weights that are cut off at a cap and carry no gradient.

    It is IMPALA's truncation of rho (arXiv 1802.01561, section 4.1), per token, and at the same time CISPO
    (2506.13585, eq. 4 and 5), whose authors leave the lower bound off: the two objectives differ in their
    caps. No token loses its gradient, as clipped ones do in PPO.
    """
    ratio_N = _ratio(logprobs_N.detach() - behaviour_N)
    losses_N = -ratio_N.clamp(max=bounds.cap) * advantages_N * logprobs_N
    never_N = torch.zeros_like(ratio_N, dtype=torch.bool)
    return Surrogate(losses_N, ratio_N, low_N=never_N, high_N=ratio_N > bounds.cap, dual_N=never_N)


SURROGATES: Mapping[str, SurrogateLoss] = {
    "grpo": clipped,
    "dr-grpo": clipped,
    "dapo": clipped,
    "gspo": sequence_clipped,
    "cispo": truncated,
    "reinforce": truncated,
}


def _ratio(log_ratio_N: torch.Tensor) -> torch.Tensor:
    """Its exponential, bounded where its square would overflow: infinity times 0 is no gradient at all."""
    return log_ratio_N.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()


def _clip(ratio_N: torch.Tensor, advantages_N: torch.Tensor, bounds: Range) -> Surrogate:
    low, high = 1.0 - bounds.low, 1.0 + bounds.high
    losses_N = -torch.minimum(ratio_N * advantages_N, ratio_N.clamp(low, high) * advantages_N)
    dual = bounds.dual or math.inf
    dual_N = (advantages_N < 0) & (ratio_N.detach() > dual)
    losses_N = torch.where(dual_N, -dual * advantages_N, losses_N)
    ratio_N = ratio_N.detach()
    return Surrogate(
        losses_N,
        ratio_N,
        low_N=(ratio_N < low) & (advantages_N < 0),
        high_N=(ratio_N > high) & (advantages_N > 0),
        dual_N=dual_N,
    )


def _geometric_mean(log_ratio_N: torch.Tensor, completion_N: torch.Tensor) -> torch.Tensor:
    """The mean log-ratio of its completion, at every token."""
    lengths_C = torch.bincount(completion_N)
    sums_C = log_ratio_N.new_zeros(len(lengths_C)).index_add(0, completion_N, log_ratio_N)
    return (sums_C / lengths_C.clamp(min=1))[completion_N]
