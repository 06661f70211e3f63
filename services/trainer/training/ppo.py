"""PPO on a batch of groups: token advantages from a learned value, and several passes over the same batch.

    groups -> rows -> values        without gradient, by the policy before the step; rewards less a baseline
    values, rewards -> advantages   generalised advantage estimation; then fixed, like the returns
    `ppo_epochs` times, for each of `ppo_mini_batches` mini-batches of whole groups:
        rows -> log-probabilities -> ratio -> clipped loss of policy, value and entropy -> optimizer step

Importance ratios are relative to the behaviour policy, whose log-probabilities the server reported.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from rookery.config.objective import KlKind
from rookery.config.trainer import TrainerSettings
from services.trainer.batches.advantages import gae, token_rewards
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import Batch, FiguresByTurn, Row, normaliser
from services.trainer.losses.surrogate import value_losses
from services.trainer.model.policy import Policy
from services.trainer.training.statistics import MicroBatchStats, PendingStats, batch_stats
from services.trainer.training.update import (
    OptimizerStats,
    StepInput,
    UpdateStats,
    check_losses,
    gather_stats,
    optimizer_step,
    token_figures,
)


@dataclass(frozen=True, slots=True)
class TokenEstimates:
    """For each token of a completion: its value before the step, its advantage, its return and its k1."""

    values: list[float]
    advantages: list[float]
    returns: list[float]
    penalties: list[float]


Estimates = Mapping[int, Sequence[TokenEstimates]]
"""Estimates of a row's completions, in their order, by the `id()` of the row."""


@dataclass(frozen=True, slots=True)
class MiniBatchStats:
    """The statistics of one optimizer step and its micro-batches."""

    parts: list[MicroBatchStats]
    loss: float
    value_loss: float
    value_clipped: float
    optimizer_stats: OptimizerStats
    token_figures: FiguresByTurn


def ppo_update(policy: Policy, optimizer: torch.optim.Optimizer, inputs: StepInput) -> UpdateStats:
    """Computes values and advantages of all tokens, then makes the optimizer steps of all epochs. Raises
    `ArithmeticError` if a value, a loss or a gradient is not finite; the message names the groups."""
    batch = inputs.batch()
    estimates = _estimate(policy, batch, inputs)
    updates = [
        _mini_batch_update(policy, optimizer, rows, estimates=estimates, inputs=inputs)
        for rows in _mini_batches(batch.rows, step=inputs.step, settings=inputs.settings)
    ]
    return UpdateStats(
        losses=_statistics(updates, estimates, kl=inputs.settings.kl),
        grad_norm=max((update.optimizer_stats.grad_norm for update in updates), default=0.0),
        lr=updates[-1].optimizer_stats.lr if updates else 0.0,
        tokens=batch.tokens,
        micro_batches=sum(len(update.parts) for update in updates),
        optimizer_s=sum(update.optimizer_stats.seconds for update in updates),
        # Those of the first epoch, which come last here, remain.
        token_figures={
            turn: figures for update in reversed(updates) for turn, figures in update.token_figures.items()
        },
    )


def _estimate(policy: Policy, batch: Batch, inputs: StepInput) -> dict[int, list[TokenEstimates]]:
    """Values, advantages and returns of all completions, computed with the policy before the step."""
    settings = inputs.settings
    in_reward = settings.kl == "k1"
    coefficient = inputs.kl_coefficient if in_reward else 0.0
    measured: list[list[list[float]]] = []
    split = inputs.partition(batch.rows)
    for forward in split.passes:
        tensors = collate(forward.rows, device=policy.device)
        with torch.no_grad():
            scores = policy.score(tensors, reference=in_reward)
            values_N = policy.values(scores.hidden_ND)
        reference_N = scores.reference_logprobs_N
        gaps_N = (
            torch.zeros_like(scores.logprobs_N) if reference_N is None else scores.logprobs_N - reference_N
        )
        if forward.weight:
            measured.append([values_N.tolist(), gaps_N.tolist()])
    estimates: dict[int, list[TokenEstimates]] = {}
    for rows, columns in zip(split.micro_batches, inputs.world.gather(measured), strict=True):
        values, gaps = map(iter, columns)
        for row in rows:
            row_estimates = estimates[id(row)] = []
            for completion in row.completions:
                token_values = [next(values) for _ in completion.token_ids]
                penalties = [next(gaps) for _ in completion.token_ids]
                rewards = token_rewards(completion.advantage, penalties, coefficient=coefficient)
                advantages = gae(rewards, token_values, gamma=settings.gamma, lambda_=settings.gae_lambda)
                for place, (value, advantage) in enumerate(zip(token_values, advantages, strict=True)):
                    # Whitening would spread NaN to all tokens.
                    if not (math.isfinite(value) and math.isfinite(advantage)):
                        raise ArithmeticError(
                            f"group {row.group_id}: value of token {place} is {value!r}, "
                            f"its advantage {advantage!r}"
                        )
                returns = [a + v for a, v in zip(advantages, token_values, strict=True)]
                row_estimates.append(TokenEstimates(token_values, advantages, returns, penalties))
    return _whitened(estimates) if settings.whiten else estimates


def _whitened(estimates: Estimates) -> dict[int, list[TokenEstimates]]:
    """Normalises the advantages to mean 0 and standard deviation 1 over all tokens. Returns are unchanged."""
    flat = torch.tensor(_flat(estimates, "advantages") or [0.0], dtype=torch.float64)
    mean, deviation = flat.mean().item(), flat.std(correction=0).item() + 1e-8
    return {
        key: [replace(e, advantages=[(a - mean) / deviation for a in e.advantages]) for e in row]
        for key, row in estimates.items()
    }


def _mini_batches(rows: Sequence[Row], *, step: int, settings: TrainerSettings) -> Iterator[list[Row]]:
    """Yields the mini-batches of all epochs. They consist of whole groups, however these are cut into rows.
    The order depends only on the seed, the step and the epoch."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group_id, []).append(row)
    for epoch in range(settings.ppo_epochs):
        order = list(groups.values())
        random.Random(f"{settings.seed}:{step}:{epoch}").shuffle(order)
        size = max(1, -(-len(order) // settings.ppo_mini_batches))
        for start in range(0, len(order), size):
            yield [row for group in order[start : start + size] for row in group]


def _mini_batch_update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Row],
    *,
    estimates: Estimates,
    inputs: StepInput,
) -> MiniBatchStats:
    settings, step = inputs.settings, inputs.step
    objective = inputs.objective(normaliser=_normaliser(rows, inputs))
    if settings.kl == "k1":  # the rewards include the penalty
        objective = replace(objective, kl="none")
    pending: list[PendingStats] = []
    critic: list[torch.Tensor] = []
    split = inputs.partition(rows)
    for forward in split.passes:
        tensors = collate(forward.rows, device=policy.device)
        old_N, advantages_N, returns_N = _columns(forward.rows, estimates, device=policy.device)
        tensors = replace(tensors, advantages_N=advantages_N)
        scores = policy.score(
            tensors, with_gradient=objective.with_gradient, reference=settings.measures_kl(step)
        )
        loss, stats = objective(scores, tensors)
        values_N = policy.values(scores.hidden_ND)
        value_N, clipped_N = value_losses(values_N, old_N, returns_N, clip=settings.value_clip)
        value_loss = (tensors.weight_N * value_N).sum() / objective.normaliser
        loss = loss + settings.value_coefficient * value_loss
        (forward.weight * loss).backward()
        if forward.weight:
            pending.append(stats)
            critic.append(
                torch.stack([t.double() for t in (loss.detach(), value_N.detach().sum(), clipped_N.sum())])
            )
    parts = gather_stats(pending, inputs.world)
    gathered = inputs.world.gather([figures.tolist() for figures in critic])
    losses, value_sums, clipped = zip(*gathered, strict=True)
    check_losses(losses, split, step=step)
    optimizer_stats = optimizer_step(policy.parameters, optimizer, inputs)
    figures = token_figures(pending, split, inputs)
    return MiniBatchStats(
        parts=parts,
        loss=sum(losses),
        value_loss=sum(value_sums),
        value_clipped=sum(clipped),
        optimizer_stats=optimizer_stats,
        token_figures=figures,
    )


def _columns(rows: Sequence[Row], estimates: Estimates, *, device: torch.device) -> list[torch.Tensor]:
    """Old values, advantages and returns of a micro-batch's tokens, each [N]."""
    completion_estimates = [estimate for row in rows for estimate in estimates[id(row)]]
    return [
        torch.tensor([x for estimate in completion_estimates for x in getattr(estimate, name)], device=device)
        for name in ("values", "advantages", "returns")
    ]


def _normaliser(rows: Sequence[Row], inputs: StepInput) -> float:
    """The divisor of a mini-batch's loss, as that of a batch of its groups alone."""
    limits = {group.id: group.sampling.max_tokens for group in inputs.groups}
    constant, weights = inputs.settings.loss_constant, inputs.settings.loss_weights
    return normaliser(
        [(len(c.token_ids), constant or limits[row.group_id]) for row in rows for c in row.completions],
        weights,
    )


def _flat(estimates: Estimates, name: str) -> list[float]:
    return [x for row in estimates.values() for estimate in row for x in getattr(estimate, name)]


def _statistics(updates: Sequence[MiniBatchStats], estimates: Estimates, *, kl: KlKind) -> dict[str, float]:
    """The statistics of the policy over all updates, and of the values before the updates.

    `explained_variance` is 1 - Var(return - value) / Var(return): 1 for a perfect critic, 0 for a constant.
    """
    parts = [part for update in updates for part in update.parts]
    tokens = max(1, sum(part.tokens for part in parts))
    row = batch_stats(parts)
    if updates:
        row["loss"] = sum(update.loss for update in updates) / len(updates)
    values, returns = (torch.tensor(_flat(estimates, name)).double() for name in ("values", "returns"))
    if not len(values):
        return row
    if kl == "k1":
        row["kl_penalty"] = math.fsum(_flat(estimates, "penalties")) / len(values)
    spread = returns.var(correction=0).item()
    residual = (returns - values).var(correction=0).item()
    return row | {
        "value_loss": sum(update.value_loss for update in updates) / tokens,
        "value_clip_fraction": sum(update.value_clipped for update in updates) / tokens,
        "value_mean": values.mean().item(),
        "return_mean": returns.mean().item(),
        "explained_variance": 1.0 - residual / spread if spread > 0 else 0.0,
    }
