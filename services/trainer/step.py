"""One optimizer step on one batch of groups."""

import time
from dataclasses import dataclass

import torch

from rookery.trace import TraceGroup
from services.trainer import optimizer as adam
from services.trainer.batch import micro_batches, rows
from services.trainer.loss import LossTerms, clipped_loss
from services.trainer.policy import Policy
from services.trainer.settings import TrainerSettings
from services.trainer.tensors import collate


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the step measured; sums are divided by the batch's completion tokens."""

    loss: float
    grad_norm: float
    lr: float
    entropy: float
    ratio_mean: float
    ratio_max: float
    clip_fraction_low: float
    clip_fraction_high: float
    kl_behaviour: float
    mismatch_age0_max: float
    tokens: int
    micro_batches: int
    forward_backward_s: float
    optimizer_s: float


def train_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: list[TraceGroup],
    *,
    step: int,
    settings: TrainerSettings,
) -> StepResult:
    """Accumulates the batch's gradient over micro-batches and moves the adapter once.

    Raises:
        ArithmeticError: the gradient is not finite; the message names the groups.
    """
    started = time.perf_counter()
    batch_rows = rows(
        groups,
        version=step,
        normalise=settings.normalise,
        mask_truncated=settings.mask_truncated,
        row_tokens=settings.row_tokens,
    )
    tokens = sum(len(c.token_ids) for row in batch_rows for c in row.completions)
    terms: list[LossTerms] = []
    entropy = 0.0
    for micro in micro_batches(batch_rows, tokens=settings.micro_batch_tokens):
        batch = collate(micro, device=policy.device)
        logprobs_N, entropy_N = policy.logprobs(batch)
        term = clipped_loss(
            logprobs_N,
            batch.behaviour_N,
            batch.advantages_N,
            batch.ages_N,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            normaliser=tokens,
        )
        term.loss.backward()
        terms.append(term)
        entropy += entropy_N.sum().item()
    computed = time.perf_counter()
    grad_norm, lr = _move(policy, optimizer, groups, step=step, settings=settings)
    count = max(1, tokens)
    return StepResult(
        loss=sum(term.loss.item() for term in terms),
        grad_norm=grad_norm,
        lr=lr,
        entropy=entropy / count,
        ratio_mean=sum(term.ratio_sum for term in terms) / count,
        ratio_max=max((term.ratio_max for term in terms), default=1.0),
        clip_fraction_low=sum(term.clipped_low for term in terms) / count,
        clip_fraction_high=sum(term.clipped_high for term in terms) / count,
        kl_behaviour=sum(term.kl_sum for term in terms) / count,
        mismatch_age0_max=max((term.mismatch_age0_max for term in terms), default=0.0),
        tokens=tokens,
        micro_batches=len(terms),
        forward_backward_s=computed - started,
        optimizer_s=time.perf_counter() - computed,
    )


def _move(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: list[TraceGroup],
    *,
    step: int,
    settings: TrainerSettings,
) -> tuple[float, float]:
    lr = adam.set_lr(optimizer, lr=settings.lr, step=step, warmup_steps=settings.warmup_steps)
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters, settings.max_grad_norm)
    if not torch.isfinite(norm):
        names = ", ".join(group.id for group in groups)
        raise ArithmeticError(f"step {step}: gradient norm is {norm.item()}; the batch holds groups {names}")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm.item(), lr
