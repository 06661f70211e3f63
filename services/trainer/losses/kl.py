"""Distance of the policy from the reference: the base model with its adapter off.

Papers disagree on the names. Here **forward is D(policy || reference)** and **reverse is
D(reference || policy)**, as in RookWorld's trainer. Much of the RLHF literature calls the first one
reverse KL, because it is the mode-seeking direction in variational inference.

Estimates from a token that p sampled, with x = log p - log p_ref (Schulman, "Approximating KL divergence",
2020). The first argument is always the policy that sampled:

    k1 = x                  unbiased for D(policy || reference), may be negative
    k2 = x^2 / 2            biased, never negative
    k3 = exp(-x) - 1 + x    unbiased, never negative

An estimator's gradient is not the gradient of what it estimates (arXiv 2510.01555, 2512.21852). As a term of
the loss, on samples of the policy itself, the expected gradient is:

    k1   zero: the gradient is the score function, which would only add noise. So `k1` is not a term of the
         loss here; it is subtracted from the advantage, where its gradient is that of D(policy || reference).
    k2   that of D(policy || reference).
    k3   that of D(reference || policy).

On samples of older versions all three are biased, because they leave the importance ratio out. The
divergences over the whole distribution (`divergence`) have no sampling error at the prefixes where they are
computed, whatever the age of the samples.
"""

from typing import Literal

import torch

Divergence = Literal["forward", "reverse", "symmetric"]


def k1(logprobs_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """Returns log p - log p_ref."""
    return logprobs_N - reference_N


def k2(logprobs_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """Returns half the squared log-ratio; never negative."""
    return (logprobs_N - reference_N).square() / 2


def k3(logprobs_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """Returns p_ref / p - 1 - log(p_ref / p); never negative."""
    log_ratio_N = reference_N - logprobs_N
    # Near a ratio of 1, exp(x) - 1 loses all float32 digits and can get the wrong sign; expm1 does not.
    return torch.expm1(log_ratio_N) - log_ratio_N


def divergence(kind: Divergence, logs_NV: torch.Tensor, reference_NV: torch.Tensor) -> torch.Tensor:
    """Returns the exact KL of each token, [N], in nats, from log-probabilities [N, V]; never negative.

    forward: sum p (log p - log p_ref). reverse: sum p_ref (log p_ref - log p). symmetric: half of both.
    """
    difference_NV = logs_NV - reference_NV
    if kind == "forward":
        return (logs_NV.exp() * difference_NV).sum(-1)
    if kind == "reverse":
        return -(reference_NV.exp() * difference_NV).sum(-1)
    return ((logs_NV.exp() - reference_NV.exp()) * difference_NV).sum(-1) / 2
