"""Losses of the policy by the objective's name, and of the critic; one value per token.

The behaviour policy is the policy that sampled; its log-probabilities come from the server. With
r = exp(log p - log p under the behaviour policy) and A the advantage:

    grpo, dr-grpo, dapo,
    ppo                   -min(r A, clip(r, 1 - low, 1 + high) A), and at most -dual A where A < 0
    gspo                  the same with one r per completion, the geometric mean of its tokens' r
    cispo, reinforce      -stop_gradient(min(r, cap)) A log p

With masks, a token has no loss if its r, or the geometric mean of its completion's, is outside a band.

grpo, dr-grpo and dapo differ elsewhere: in the standard deviation of the advantage, in the weights of the
tokens, and in which groups are trained on.
"""

import math
from dataclasses import dataclass, replace

import torch

from rookery.config.objective import ObjectiveName

_MAX_LOG_RATIO = 40.0
"""Far beyond any clip range."""


@dataclass(frozen=True, slots=True)
class RatioBounds:
    """The bounds of importance ratios: clipped to [1 - low, 1 + high], or cut off above `cap`.

    `dual` bounds the ratios of tokens with a negative advantage, which the clip leaves unbounded; 0 means no
    bound. `token_mask` and `sequence_mask` are the bands of `within_masks`; 0 means no such end.
    """

    low: float
    high: float
    cap: float
    dual: float = 0.0
    token_mask: tuple[float, float] = (0.0, 0.0)
    sequence_mask: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Surrogate:
    """One entry a token; only `losses_N` carries a gradient.

    `low_N`, `high_N` and `dual_N` mark the tokens whose gradient the clip stopped. For cispo and reinforce,
    `high_N` marks those whose weight was cut off at the cap. `masked_N` marks the tokens without a loss; None
    without masks.
    """

    losses_N: torch.Tensor
    ratio_N: torch.Tensor
    low_N: torch.Tensor
    high_N: torch.Tensor
    dual_N: torch.Tensor
    masked_N: torch.Tensor | None = None


def within_masks(
    log_ratio_N: torch.Tensor, completion_N: torch.Tensor, bounds: RatioBounds
) -> torch.Tensor | None:
    """Returns which tokens have a loss, [N] of bool; None if there are no masks.

    The token mask drops tokens whose ratio is outside [a, b], whatever their advantage: IcePop (Ring-1T,
    arXiv 2510.18855), with a = 0.5 and b = 5. The sequence mask drops all tokens of a completion if the
    geometric mean of their ratios is outside: the rejection `geometric` of verl's docs/algo/rollout_corr.md.
    Dropped tokens still count in the normaliser, as in IcePop. Masks have no gradient.
    """
    if not any((*bounds.token_mask, *bounds.sequence_mask)):
        return None
    within_N = torch.ones_like(log_ratio_N, dtype=torch.bool)
    means_N = _completion_means(log_ratio_N, completion_N)
    for (low, high), values_N in ((bounds.token_mask, log_ratio_N), (bounds.sequence_mask, means_N)):
        if low:
            within_N &= values_N >= math.log(low)
        if high:
            within_N &= values_N <= math.log(high)
    return within_N


def _completion_means(values_N: torch.Tensor, completion_N: torch.Tensor) -> torch.Tensor:
    """Returns for each token the mean of its completion."""
    lengths_C = torch.bincount(completion_N)
    sums_C = values_N.new_zeros(len(lengths_C)).index_add(0, completion_N, values_N)
    return (sums_C / lengths_C.clamp(min=1))[completion_N]


def surrogate_losses(
    objective: ObjectiveName,
    logprobs_N: torch.Tensor,
    behaviour_N: torch.Tensor,
    advantages_N: torch.Tensor,
    completion_N: torch.Tensor,
    bounds: RatioBounds,
) -> Surrogate:
    """Returns the losses of a micro-batch's tokens, those outside the masks of `bounds` 0.

    `completion_N` numbers its completions from 0.

    grpo, dr-grpo, dapo, ppo: PPO's clipped surrogate per token (arXiv 1707.06347, eq. 7), as GRPO uses it
    (2402.03300, eq. 3). Separate `low` and `high` come from DAPO (2503.14476, eq. 8 and 10: clip-higher). If
    A < 0 and r is large, the loss -r A has no bound; dual clip bounds it (Ye et al., 1912.09729, eq. 5).

    gspo: a completion's ratio is the geometric mean of its tokens' ratios (2507.18071, eq. 5 and 7). Every
    token gets its completion's loss, so the weights `sequence` give the paper's mean over completions. A
    completion is never split over two micro-batches.

    cispo, reinforce: REINFORCE with importance weights that are cut off at a cap and carry no gradient. This
    is IMPALA's truncation of rho (1802.01561, section 4.1), per token. It is also CISPO (2506.13585, eq. 4
    and 5), whose authors use no lower bound. The two differ only in their caps. Every token keeps its
    gradient; in PPO, clipped tokens lose it.
    """
    log_ratio_N = logprobs_N - behaviour_N
    within_N = within_masks(log_ratio_N.detach(), completion_N, bounds)
    if objective in ("cispo", "reinforce"):
        ratio_N = _ratio(log_ratio_N.detach())
        losses_N = -ratio_N.clamp(max=bounds.cap) * advantages_N * logprobs_N
        never_N = torch.zeros_like(ratio_N, dtype=torch.bool)
        surrogate = Surrogate(losses_N, ratio_N, low_N=never_N, high_N=ratio_N > bounds.cap, dual_N=never_N)
        return _masked(surrogate, within_N)
    if objective == "gspo":
        log_ratio_N = _completion_means(log_ratio_N, completion_N)
    ratio_N, low, high = _ratio(log_ratio_N), 1.0 - bounds.low, 1.0 + bounds.high
    losses_N = -torch.minimum(ratio_N * advantages_N, ratio_N.clamp(low, high) * advantages_N)
    dual = bounds.dual or math.inf
    dual_N = (advantages_N < 0) & (ratio_N.detach() > dual)
    losses_N = torch.where(dual_N, -dual * advantages_N, losses_N)
    ratio_N = ratio_N.detach()
    surrogate = Surrogate(
        losses_N,
        ratio_N,
        low_N=(ratio_N < low) & (advantages_N < 0),
        high_N=(ratio_N > high) & (advantages_N > 0),
        dual_N=dual_N,
    )
    return _masked(surrogate, within_N)


def _masked(surrogate: Surrogate, within_N: torch.Tensor | None) -> Surrogate:
    """Takes the losses of the tokens outside the masks away."""
    if within_N is None:
        return surrogate
    return replace(surrogate, losses_N=surrogate.losses_N.where(within_N, 0.0), masked_N=~within_N)


def _ratio(log_ratio_N: torch.Tensor) -> torch.Tensor:
    """Returns the ratio, bounded so that its square cannot overflow: infinity times 0 is NaN."""
    return log_ratio_N.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()


def value_losses(
    values_N: torch.Tensor, old_N: torch.Tensor, returns_N: torch.Tensor, *, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns half the squared error of each value, [N], and where the clip applies, [N] of bool.

    The loss is the larger of the errors of the value and of the value clipped to [old - clip, old + clip],
    so a value gains nothing by leaving that range towards its return. OpenAI's PPO; Engstrom et al. 2020
    (arXiv 2005.12729), section 3, item 1. A `clip` of 0 does not clip. Only `values_N` carries a gradient.
    """
    errors_N = (values_N - returns_N).square()
    if clip == 0.0:
        return 0.5 * errors_N, torch.zeros_like(errors_N, dtype=torch.bool)
    clipped_N = old_N + (values_N - old_N).clamp(-clip, clip)
    clipped_errors_N = (clipped_N - returns_N).square()
    return 0.5 * torch.maximum(errors_N, clipped_errors_N), (clipped_errors_N > errors_N).detach()
