"""One update of the policy from a batch of groups: GRPO and its variants, from top to bottom.

    groups -> advantages -> rows      rewards minus a baseline; prompts with completions: `prepare_batch`
    rows -> log-probabilities         `Policy.score`, with gradient, one micro-batch after the other
    log-probabilities -> ratio        exp(log p - log p of the behaviour policy): `losses.surrogate`
    ratio -> loss                     clipped surrogate + KL - entropy, weighted by token: `Objective`
    loss -> step                      backward, sum over processes, clipped by norm, AdamW: `optimizer_step`

`ppo.ppo_update` replaces this for PPO.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

import torch

from rookery.config.objective import KlKind, ObjectiveName, ObjectiveSettings
from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.batches.advantages import RewardAverages
from services.trainer.batches.micro_batches import MicroBatch, Partition, collate, partition
from services.trainer.batches.rows import Batch, FiguresByTurn, Row, TokenFigures, prepare_batch
from services.trainer.distributed.placement import full_tensor
from services.trainer.distributed.process_group import World
from services.trainer.losses import regularisers
from services.trainer.losses.surrogate import RatioBounds, surrogate_losses
from services.trainer.model.head import TokenScores, WithGradient
from services.trainer.model.policy import Policy
from services.trainer.training import optimizer as adam
from services.trainer.training.statistics import MicroBatchStats, PendingStats, batch_stats


@dataclass(frozen=True, slots=True)
class StepInput:
    """The groups of a step and everything else that the update depends on, except the weights."""

    groups: Sequence[TraceGroup]
    step: int
    settings: TrainerSettings
    averages: RewardAverages | None
    kl_coefficient: float
    world: World
    entropy_coefficient: float = 0.0
    dry_run: bool = False
    """Whether to leave out the optimizer's step."""

    def objective(self, *, normaliser: float) -> "Objective":
        """The loss of the step's micro-batches."""
        return Objective.of(
            self.settings,
            coefficient=self.kl_coefficient,
            normaliser=normaliser,
            entropy_coefficient=self.entropy_coefficient,
        )

    def batch(self) -> Batch:
        """Groups to advantages to rows of tokens."""
        return prepare_batch(self.groups, version=self.step, settings=self.settings, averages=self.averages)

    def partition(self, rows: Sequence[Row]) -> Partition:
        """Rows to the forward passes of this process."""
        return partition(
            rows,
            tokens=self.settings.micro_batch_tokens,
            rank=self.world.rank,
            processes=self.world.size,
            same_number=self.world.sharded,
        )


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """The statistics of an update, which has one optimizer step, or with PPO several.

    `losses` has those of the losses by name: see `statistics.batch_stats`. `optimizer_s` is the time that the
    optimizer took.
    """

    losses: Mapping[str, float]
    grad_norm: float
    lr: float
    tokens: int
    micro_batches: int
    optimizer_s: float
    token_figures: FiguresByTurn


def single_update(policy: Policy, optimizer: torch.optim.Optimizer, inputs: StepInput) -> UpdateStats:
    """Computes the gradient of the whole batch, then makes one optimizer step. Raises `ArithmeticError` if an
    advantage, a loss or the gradient is not finite; the message names the groups."""
    batch = inputs.batch()  # groups -> advantages -> rows
    objective = inputs.objective(normaliser=batch.normaliser)
    split = inputs.partition(batch.rows)
    pending: list[PendingStats] = []
    for forward in split.passes:
        tensors = collate(forward.rows, device=policy.device)
        scores = policy.score(  # rows -> log-probabilities
            tensors, with_gradient=objective.with_gradient, reference=inputs.settings.measures_kl(inputs.step)
        )
        loss, stats = objective(scores, tensors)  # log-probabilities -> ratio -> loss
        (forward.weight * loss).backward()
        if forward.weight:
            pending.append(stats)
    parts = gather_stats(pending, inputs.world)
    check_losses([part.loss for part in parts], split, step=inputs.step)
    optimizer_stats = optimizer_step(policy.parameters, optimizer, inputs)  # gradient -> new weights
    return UpdateStats(
        losses=batch_stats(parts),
        grad_norm=optimizer_stats.grad_norm,
        lr=optimizer_stats.lr,
        tokens=batch.tokens,
        micro_batches=len(parts),
        optimizer_s=optimizer_stats.seconds,
        token_figures=token_figures(pending, split, inputs),
    )


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of a micro-batch: surrogate, KL penalty, entropy bonus and token weights, as configured.

    `normaliser` is the batch's (see `batches.rows`), `coefficient` the weight of the KL.
    """

    objective: ObjectiveName
    bounds: RatioBounds
    kl: KlKind
    coefficient: float
    normaliser: float
    entropy_coefficient: float = 0.0

    @classmethod
    def of(
        cls,
        settings: ObjectiveSettings,
        *,
        coefficient: float,
        normaliser: float,
        entropy_coefficient: float = 0.0,
    ) -> Self:
        """Builds the objective from the settings."""
        bounds = RatioBounds(
            settings.clip_low,
            settings.clip_high,
            settings.ratio_cap,
            dual=settings.dual_clip,
            token_mask=(settings.token_mask_low, settings.token_mask_high),
            sequence_mask=(settings.sequence_mask_low, settings.sequence_mask_high),
        )
        return cls(
            settings.objective,
            bounds,
            settings.kl,
            coefficient=coefficient,
            normaliser=normaliser,
            entropy_coefficient=entropy_coefficient,
        )

    @property
    def with_gradient(self) -> WithGradient:
        """The scores that need gradients besides the log-probabilities."""
        entropy = self.entropy_coefficient > 0.0
        if self.kl == "policy_reference" or self.kl == "reference_policy" or self.kl == "symmetric":
            return WithGradient(entropy=entropy, kl=self.kl)
        return WithGradient(entropy=entropy)

    def __call__(self, scores: TokenScores, batch: MicroBatch) -> tuple[torch.Tensor, PendingStats]:
        """Returns the micro-batch's part of the batch's loss, and its statistics."""
        penalty_N = self._penalty(scores)
        advantages_N = batch.advantages_N
        if penalty_N is not None and self.kl == "k1":
            advantages_N = advantages_N - self.coefficient * penalty_N
        surrogate = surrogate_losses(
            self.objective,
            scores.logprobs_N,
            batch.behaviour_N,
            advantages_N=advantages_N,
            completion_N=batch.completion_N,
            bounds=self.bounds,
        )
        losses_N = surrogate.losses_N
        if penalty_N is not None and self.kl != "k1":
            losses_N = losses_N + self.coefficient * penalty_N
        if self.entropy_coefficient:
            losses_N = losses_N - self.entropy_coefficient * scores.entropy_N
        loss = (batch.weight_N * losses_N).sum() / self.normaliser
        return loss, PendingStats.of(
            loss, surrogate, scores, batch=batch, penalty_N=penalty_N, advantages_N=advantages_N
        )

    def _penalty(self, scores: TokenScores) -> torch.Tensor | None:
        """Returns the KL of each token, or None if the settings have no KL.

        k1 has no gradient, because it goes into the advantage. The others have one and go into the loss.
        Raises `ValueError` if the scores have no reference.
        """
        if self.kl == "none":
            return None
        reference_N = scores.reference_logprobs_N
        if reference_N is None:
            raise ValueError(f"KL {self.kl!r} needs scores of a reference")
        if self.kl == "k1":
            return regularisers.k1(scores.logprobs_N.detach(), reference_N)
        if self.kl in ("k2", "k3"):
            return (regularisers.k2 if self.kl == "k2" else regularisers.k3)(scores.logprobs_N, reference_N)
        return scores.kl_N


def gather_stats(pending: Sequence[PendingStats], world: World) -> list[MicroBatchStats]:
    """The statistics of the micro-batches of all processes, in the order of `Partition.micro_batches`."""
    return [MicroBatchStats.of(*part) for part in world.gather([stats.read() for stats in pending])]


def check_losses(losses: Sequence[float], split: Partition, *, step: int) -> None:
    """Rejects losses of micro-batches that are not finite, before the optimizer uses their gradients.

    Raises:
        ArithmeticError: one is not finite. The message names the groups of the first such micro-batch.
    """
    for loss, rows in zip(losses, split.micro_batches, strict=True):
        if not math.isfinite(loss):
            names = ", ".join(dict.fromkeys(row.group_id for row in rows))
            raise ArithmeticError(f"step {step}: loss is {loss!r} in a micro-batch of groups {names}")


def token_figures(pending: Sequence[PendingStats], split: Partition, inputs: StepInput) -> FiguresByTurn:
    """The figures of the tokens in all processes' micro-batches; empty unless `ratios_mb` keeps them."""
    if not inputs.settings.ratios_mb:
        return {}
    figures: dict[str, TokenFigures] = {}
    local = [[stats.ratio_N.tolist(), stats.advantage_N.tolist()] for stats in pending]
    for rows, columns in zip(split.micro_batches, inputs.world.gather(local), strict=True):
        ratios, advantages = map(iter, columns)
        for completion in (completion for row in rows for completion in row.completions):
            tokens = len(completion.token_ids)
            figures[completion.turn] = TokenFigures(
                list(islice(ratios, tokens)), list(islice(advantages, tokens))
            )
    return figures


@dataclass(frozen=True, slots=True)
class OptimizerStats:
    """The statistics of one optimizer step."""

    grad_norm: float
    lr: float
    seconds: float


def optimizer_step(
    parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Optimizer, inputs: StepInput
) -> OptimizerStats:
    """Makes one optimizer step with the clipped sum of the gradients of all processes. Raises
    `ArithmeticError` if the gradient is not finite; the message names the groups."""
    started = time.perf_counter()
    settings, step = inputs.settings, inputs.step
    lr = settings.lr * adam.lr_factor(
        settings.lr_schedule, step=step, steps=settings.max_steps, warmup=settings.warmup_steps
    )
    adam.set_lr(optimizer, lr)
    inputs.world.sum_gradients(parameters)
    norm = full_tensor(torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm))
    if not torch.isfinite(norm):
        names = ", ".join(group.id for group in inputs.groups)
        raise ArithmeticError(f"step {step}: gradient norm is {norm.item()}; the batch holds groups {names}")
    if not inputs.dry_run:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return OptimizerStats(norm.item(), lr, time.perf_counter() - started)
