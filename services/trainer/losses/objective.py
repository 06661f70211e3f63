"""The policy's loss on a micro-batch, composed of surrogate, KL and token weights as the settings say."""

from dataclasses import dataclass
from typing import Self

import torch

from services.trainer.batches.tensors import MicroBatch
from services.trainer.losses import kl
from services.trainer.losses.measures import Pending, measure
from services.trainer.losses.surrogate import SURROGATES, Range, SurrogateLoss
from services.trainer.model.head import TokenScores, Wanted
from services.trainer.settings import KlKind, ObjectiveSettings


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of a step. `normaliser` is the batch's (see `weights`), `coefficient` the weight of the KL."""

    surrogate: SurrogateLoss
    bounds: Range
    kl: KlKind
    coefficient: float
    normaliser: float

    @classmethod
    def of(cls, settings: ObjectiveSettings, *, coefficient: float, normaliser: float) -> Self:
        """Builds the objective that the settings name."""
        return cls(
            surrogate=SURROGATES["grpo" if settings.objective == "ppo" else settings.objective],
            bounds=Range(settings.clip_low, settings.clip_high, settings.ratio_cap, settings.dual_clip),
            kl=settings.kl,
            coefficient=coefficient,
            normaliser=normaliser,
        )

    @property
    def wanted(self) -> Wanted:
        """The scores that need gradients besides the log-probabilities."""
        if self.kl == "forward" or self.kl == "reverse" or self.kl == "symmetric":
            return Wanted(kl=self.kl)
        return Wanted()

    def __call__(self, scores: TokenScores, batch: MicroBatch) -> tuple[torch.Tensor, Pending]:
        """Returns the micro-batch's part of the batch's loss, and its figures."""
        penalty_N = self._penalty(scores)
        advantages_N = batch.advantages_N
        if penalty_N is not None and self.kl == "k1":
            advantages_N = advantages_N - self.coefficient * penalty_N
        surrogate = self.surrogate(
            scores.logprobs_N, batch.behaviour_N, advantages_N, batch.completion_N, self.bounds
        )
        losses_N = surrogate.losses_N
        if penalty_N is not None and self.kl != "k1":
            losses_N = losses_N + self.coefficient * penalty_N
        loss = (batch.share_N * losses_N).sum() / self.normaliser
        measures = measure(
            loss,
            surrogate,
            logprobs_N=scores.logprobs_N,
            behaviour_N=batch.behaviour_N,
            ages_N=batch.ages_N,
            oldest=batch.oldest,
            entropy_N=scores.entropy_N,
            reference_kl_N=scores.reference_kl_N,
            penalty_N=penalty_N,
        )
        return loss, measures

    def _penalty(self, scores: TokenScores) -> torch.Tensor | None:
        """Returns the KL of each token, or None if the settings have no KL.

        k1 has no gradient, because it goes into the advantage. The others have one and go into the loss.

        Raises:
            ValueError: the scores have no reference.
        """
        if self.kl == "none":
            return None
        reference_N = scores.reference_logprobs_N
        if reference_N is None:
            raise ValueError(f"KL {self.kl!r} needs scores of a reference")
        if self.kl == "k1":
            return kl.k1(scores.logprobs_N.detach(), reference_N)
        if self.kl in ("k2", "k3"):
            return (kl.k2 if self.kl == "k2" else kl.k3)(scores.logprobs_N, reference_N)
        return scores.kl_N
