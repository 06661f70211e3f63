"""KL between the policy and the reference, the entropy bonus, and how their coefficients change over steps.

The reference is the base model with its adapter off.

Names of divergences say their direction: `policy_reference` is D(policy || reference), and
`reference_policy` is D(reference || policy). (RookWorld's trainer calls the first one forward and the second
one reverse. Much of the RLHF literature calls the first one reverse, because it is mode-seeking.)

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

from dataclasses import dataclass
from typing import Literal

import torch

from rookery.config.objective import ObjectiveSettings

Divergence = Literal["policy_reference", "reference_policy", "symmetric"]

_FACTOR = 1.5
"""The step and the tolerance of the schedule adaptive, as in RookWorld's mini trainer."""

_GAIN = 0.1
_ERROR_LIMIT = 0.2
"""K and the clip of the schedule smooth (Ziegler et al., arXiv 1909.08593, section 2.2)."""

_SPAN = 30.0
"""The coefficient stays within this factor of its initial value. A new adapter has a KL of 0, so the
coefficient falls at first. Without a bound it would recover too late once the policy leaves its base."""

_DAMPING = 30.0
_MOST = 10.0
"""Bounds the entropy coefficient if the target cannot be reached. Advantages have a deviation of about 1."""


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

    policy_reference: sum p (log p - log p_ref). reference_policy: sum p_ref (log p_ref - log p).
    symmetric: half of both.
    """
    difference_NV = logs_NV - reference_NV
    if kind == "policy_reference":
        return (logs_NV.exp() * difference_NV).sum(-1)
    if kind == "reference_policy":
        return -(reference_NV.exp() * difference_NV).sum(-1)
    return ((logs_NV.exp() - reference_NV.exp()) * difference_NV).sum(-1) / 2


@dataclass(frozen=True, slots=True)
class KlController:
    """The state of the schedules adaptive and smooth, which each commit stores.

    `now` is the coefficient of the next step, `begun` the setting that it started from.
    """

    now: float
    begun: float


def kl_coefficient(state: KlController | None, *, step: int, settings: ObjectiveSettings) -> float:
    """Returns the coefficient of step `step`, counted from 0.

    `state` is None before the first step and for schedules without a state. The schedule warmup is linear and
    reaches the full value after `kl_warmup_steps`. A run that resumes with another `kl_coefficient` starts
    again from the new value.
    """
    full = settings.kl_coefficient
    if settings.kl_schedule == "warmup":
        return full * min(1.0, (step + 1) / (settings.kl_warmup_steps + 1))
    if settings.kl_schedule == "fixed" or state is None or state.begun != full:
        return full
    return state.now


def updated_controller(
    state: KlController | None, now: float, *, kl: float | None, settings: ObjectiveSettings
) -> KlController | None:
    """Returns the state after a step with coefficient `now`; None for schedules without a state.

    `kl` is the KL that the step measured, in nats per token. If it is None, the state does not change.

    adaptive: x1.5 above 1.5 targets, /1.5 below target/1.5.
    smooth: times 1 + 0.1 clip(kl/target - 1, -0.2, 0.2). Ziegler et al. measure the KL of a whole sequence;
    here it is the mean per token.
    """
    if settings.kl_schedule not in ("adaptive", "smooth"):
        return None
    if kl is None:
        return state
    relative = kl / settings.kl_target
    if settings.kl_schedule == "smooth":
        factor = 1.0 + _GAIN * min(max(relative - 1.0, -_ERROR_LIMIT), _ERROR_LIMIT)
    elif relative > _FACTOR:
        factor = _FACTOR
    else:
        factor = 1 / _FACTOR if relative < 1 / _FACTOR else 1.0
    full = settings.kl_coefficient
    return KlController(min(max(now * factor, full / _SPAN), full * _SPAN), full)


@dataclass(frozen=True, slots=True)
class EntropyController:
    """The state of the entropy bonus with a target, which each commit stores.

    `now` is the coefficient of the next step, `begun` the setting that `integral` started from.

    The bonus adds c H to the objective, where H is the entropy of the next token in nats, exact over the
    whole vocabulary at the prefixes of the batch. With a target H0, c is a proportional-integral controller:

        I <- clip(I + rate (H0 - H), 0, 10)
        c <- clip(I + 30 rate (H0 - H), 0, 10)

    I alone is dual ascent for the constraint H >= H0 (as for the temperature of soft actor-critic, arXiv
    1812.05905, section 5). It oscillates: the gradient of H vanishes when the policy is nearly certain, so H
    answers late. The proportional part damps that; 30 settles bandits of several learning rates
    (test_bandit).
    """

    integral: float
    now: float
    begun: float


def entropy_coefficient(state: EntropyController | None, *, settings: ObjectiveSettings) -> float:
    """Returns the coefficient of a step. `state` is that of the previous step, None before the first one.

    A run that resumes with another `entropy_coefficient` starts again from the new value.
    """
    initial = settings.entropy_coefficient
    return initial if state is None or state.begun != initial or not settings.entropy_target else state.now


def updated_entropy_controller(
    state: EntropyController | None, *, entropy: float | None, settings: ObjectiveSettings
) -> EntropyController | None:
    """Returns the state after a step that measured `entropy`, in nats per token; None without a target.

    If `entropy` is None, the step had no tokens, and the state does not change.
    """
    if not settings.entropy_target:
        return None
    if entropy is None:
        return state
    initial = settings.entropy_coefficient
    before = initial if state is None or state.begun != initial else state.integral
    change = settings.entropy_rate * (settings.entropy_target - entropy)
    integral = min(max(before + change, 0.0), _MOST)
    return EntropyController(integral, min(max(integral + _DAMPING * change, 0.0), _MOST), initial)
