"""Distance of the policy from the reference: the base model with its adapter off.

Names, because papers disagree: here **forward is D(policy || reference)** and **reverse is
D(reference || policy)**, as in RookWorld's trainer. Much of the RLHF literature calls the first one
reverse KL, because it is the mode-seeking side of variational inference.

Estimates from a token that p sampled, with x = log p - log p_ref (Schulman, "Approximating KL divergence",
2020). The first argument is always the policy that sampled:

    k1 = x                  unbiased for D(policy || reference), may be negative
    k2 = x^2 / 2            biased, never negative
    k3 = exp(-x) - 1 + x    unbiased, never negative

An estimator's gradient is not the gradient of what it estimates (arXiv 2510.01555, 2512.21852). On samples
of the policy itself, differentiated as a term of the loss:

    k1   has mean zero: it is the score function, and would only add noise. So `k1` is no term of the loss
         here: it is subtracted from the advantage, where its gradient is that of D(policy || reference).
    k2   has the gradient of D(policy || reference).
    k3   has the gradient of D(reference || policy).

Samples of older versions bias all three by the importance ratio that they leave out. The divergences over the
whole distribution (`divergence`) have no sampling error, at any age, at the prefixes they are taken at.
"""

from typing import Literal

import torch

Divergence = Literal["forward", "reverse", "symmetric"]


def k1(logprobs_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """log p - log p_ref."""
    return logprobs_N - reference_N


def k2(logprobs_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """Half the squared log-ratio; never negative."""
    return (logprobs_N - reference_N).square() / 2


def k3(logprobs_N: torch.Tensor, reference_N: torch.Tensor) -> torch.Tensor:
    """p_ref / p - 1 - log(p_ref / p); never negative."""
    log_ratio_N = reference_N - logprobs_N
    # expm1: near 1 the plain form loses all digits of float32, and its sign.
    return torch.expm1(log_ratio_N) - log_ratio_N


def divergence(kind: Divergence, logs_NV: torch.Tensor, reference_NV: torch.Tensor) -> torch.Tensor:
    """Exact KL over the vocabulary a token, in nats, from log-probabilities [N, V]; never negative.

    forward: sum p (log p - log p_ref). reverse: sum p_ref (log p_ref - log p). symmetric: half of both.
    """
    difference_NV = logs_NV - reference_NV
    if kind == "forward":
        return (logs_NV.exp() * difference_NV).sum(-1)
    if kind == "reverse":
        return -(reference_NV.exp() * difference_NV).sum(-1)
    return ((logs_NV.exp() - reference_NV.exp()) * difference_NV).sum(-1) / 2
