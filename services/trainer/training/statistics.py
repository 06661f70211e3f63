"""The statistics of an update: sums over micro-batches, divided once at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from services.trainer.batches.micro_batches import MicroBatch
from services.trainer.losses.regularisers import k3
from services.trainer.losses.surrogate import Surrogate
from services.trainer.model.head import TokenScores


@dataclass(frozen=True, slots=True)
class PendingStats:
    """Statistics on the device. Reading them early would make the backward pass wait for the forward."""

    tokens: int
    names: tuple[str, ...]
    values: torch.Tensor
    """In this order: loss, largest ratio, the named sums, tokens by age, k3 by age."""
    ratio_N: torch.Tensor
    advantage_N: torch.Tensor

    @classmethod
    def of(
        cls,
        loss: torch.Tensor,
        surrogate: Surrogate,
        scores: TokenScores,
        *,
        batch: MicroBatch,
        penalty_N: torch.Tensor | None,
        advantages_N: torch.Tensor,
    ) -> Self:
        """Computes the statistics of a micro-batch. For GSPO, `ratio_N` of the surrogate is the ratio of the
        token's completion, otherwise of the token."""
        columns = {
            "ratio": surrogate.ratio_N,
            "ratio_squared": surrogate.ratio_N.square(),
            "low": surrogate.low_N,
            "high": surrogate.high_N,
            "dual": surrogate.dual_N,
            "entropy": scores.entropy_N.detach(),
        }
        if surrogate.masked_N is not None:
            columns["masked"] = surrogate.masked_N
        if scores.reference_kl_N is not None:
            columns["reference"] = scores.reference_kl_N
        if penalty_N is not None:
            columns["penalty"] = penalty_N.detach()
        # k3 takes the policy that sampled the tokens first: pi/mu - 1 - log(pi/mu) is unbiased under mu.
        # In float64, because the exponential overflows float32 if a token has become far more likely.
        k3_N = k3(batch.behaviour_N.double(), scores.logprobs_N.detach().double())
        empty_A = k3_N.new_zeros(batch.oldest + 1)
        by_age = [empty_A.index_add(0, batch.ages_N, values_N) for values_N in (torch.ones_like(k3_N), k3_N)]
        scalars = [loss.detach(), surrogate.ratio_N.max(), *(v.sum() for v in columns.values())]
        values = torch.cat([torch.stack([scalar.double() for scalar in scalars]), *by_age])
        return cls(len(k3_N), tuple(columns), values, surrogate.ratio_N, advantages_N)

    def read(self) -> list[Any]:
        """Returns the arguments of `MicroBatchStats.of`, transferred from the device in one copy."""
        return [self.tokens, self.names, self.values.tolist()]


@dataclass(frozen=True, slots=True)
class MicroBatchStats:
    """The statistics of one micro-batch as Python numbers.

    `sums` are over tokens. `behaviour_by_age` maps an age to the number of its tokens and the sum of their
    k3, which estimates D(behaviour || policy) because the behaviour policy sampled them.
    """

    tokens: int
    loss: float
    ratio_max: float
    sums: dict[str, float]
    behaviour_by_age: dict[int, tuple[int, float]]

    @classmethod
    def of(cls, tokens: int, names: Sequence[str], values: Sequence[float]) -> Self:
        """Builds the statistics from those of `PendingStats`, also of another process."""
        loss, ratio_max, *rest = values
        sums, by_age = rest[: len(names)], rest[len(names) :]
        counts, totals = by_age[: len(by_age) // 2], by_age[len(by_age) // 2 :]
        ages = enumerate(zip(counts, totals, strict=True))
        return cls(
            tokens=tokens,
            loss=loss,
            ratio_max=ratio_max,
            sums=dict(zip(names, sums, strict=True)),
            behaviour_by_age={age: (int(count), total) for age, (count, total) in ages if count},
        )


def batch_stats(parts: Sequence[MicroBatchStats]) -> dict[str, float]:
    """Returns the batch's statistics by their names in metrics.jsonl. Means are over completion tokens, so
    without any there is the loss alone.

    `ess` is the effective sample size of the importance weights as a share of the N tokens,
    (sum w)^2 / (N sum w^2) (Kong 1992): 1 when all weigh the same, 1/N when one outweighs all.
    """
    if not (count := sum(part.tokens for part in parts)):
        return {"loss": 0.0}

    def total(name: str) -> float:
        return sum(part.sums.get(name, 0.0) for part in parts)

    ages = sorted({age for part in parts for age in part.behaviour_by_age})
    by_age = {age: [part.behaviour_by_age.get(age, (0, 0.0)) for part in parts] for age in ages}
    row = {
        "loss": sum(part.loss for part in parts),
        "entropy": total("entropy") / count,
        "ratio_mean": total("ratio") / count,
        "ratio_max": max(part.ratio_max for part in parts),
        "ess": total("ratio") ** 2 / (count * total("ratio_squared")) if total("ratio_squared") else 1.0,
        "clip_fraction_low": total("low") / count,
        "clip_fraction_high": total("high") / count,
        "clip_fraction_dual": total("dual") / count,
        "kl_behaviour": sum(value for pairs in by_age.values() for _, value in pairs) / count,
    }
    for age, pairs in by_age.items():
        row[f"kl_behaviour_age{age}"] = sum(value for _, value in pairs) / sum(n for n, _ in pairs)
    optional = {"masked": "mask_fraction", "reference": "kl_reference", "penalty": "kl_penalty"}
    for name, shown in optional.items():
        if any(name in part.sums for part in parts):
            row[shown] = total(name) / count
    return row
