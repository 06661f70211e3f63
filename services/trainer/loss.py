"""The clipped policy-gradient loss against the behaviour policy, and what it says about the batch.

One entry a completion token; N is their number. No model here, only log-probabilities.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Sums over tokens, to be divided by the global token count; maxima are over tokens."""

    loss: torch.Tensor
    ratio_sum: float
    ratio_max: float
    clipped_low: int
    clipped_high: int
    mismatch_age0_max: float
    kl_sum: float


def clipped_loss(
    logprobs_N: torch.Tensor,
    behaviour_N: torch.Tensor,
    advantages_N: torch.Tensor,
    ages_N: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    normaliser: float,
) -> LossTerms:
    """PPO's clipped surrogate (arXiv 1707.06347, eq. 7) with an asymmetric range (DAPO, arXiv 2503.14476).

    `normaliser` is the number of completion tokens of the whole batch, so that the gradient does
    not depend on how the batch is cut into micro-batches.
    """
    log_ratio_N = logprobs_N - behaviour_N
    ratio_N = log_ratio_N.exp()
    clipped_N = ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N).sum() / normaliser
    with torch.no_grad():
        fresh_N = log_ratio_N[ages_N == 0].abs()
        return LossTerms(
            loss=loss,
            ratio_sum=ratio_N.sum().item(),
            ratio_max=ratio_N.max().item(),
            clipped_low=int(((ratio_N < 1.0 - clip_low) & (advantages_N < 0)).sum()),
            clipped_high=int(((ratio_N > 1.0 + clip_high) & (advantages_N > 0)).sum()),
            mismatch_age0_max=fresh_N.max().item() if fresh_N.numel() else 0.0,
            # k3 (Schulman, "Approximating KL divergence"): unbiased, never negative.
            kl_sum=((-log_ratio_N).exp() - 1 + log_ratio_N).sum().item(),
        )
