"""A policy small enough to be known in full: the next token depends on the last one alone, in float64."""

import random
from collections.abc import Sequence
from dataclasses import replace

import torch

from rookery.trace import Completion, Outcome, PolicyVersion, Sampling, Trace, TraceGroup, Turn, Verdict
from services.trainer.batches.micro_batches import MicroBatch
from services.trainer.model.base_model import Head
from services.trainer.model.head import TokenScores, WithGradient, score_tokens
from tests.unit.trainer.groups import make_group

NOTHING = WithGradient()


class Bigram:
    """Stands where the trainer has a `Policy`; the reference is what it was when made."""

    device = torch.device("cpu")

    def __init__(self, vocabulary: int, *, seed: int | None = None) -> None:
        self.vocabulary = vocabulary
        generator = torch.Generator().manual_seed(seed or 0)
        table = torch.randn(vocabulary, vocabulary, dtype=torch.float64, generator=generator)
        self.table_VV = torch.nn.Parameter(table * (seed is not None))
        self.reference_VV = torch.randn(vocabulary, vocabulary, dtype=torch.float64, generator=generator) * (
            seed is not None
        )

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [self.table_VV]

    def score(
        self, batch: MicroBatch, *, with_gradient: WithGradient = NOTHING, reference: bool = False
    ) -> TokenScores:
        before = batch.input_ids_1T.flatten()[batch.predictor_N]
        return score_tokens(
            Head(lambda hidden: hidden),
            self.table_VV[before],
            batch.targets_N,
            vocabulary=self.vocabulary,
            temperature=batch.temperature,
            reference_ND=self.reference_VV[before] if reference else None,
            with_gradient=with_gradient,
        )

    def sample(self, number: int, *, rewards: Sequence[float], size: int, version: int) -> TraceGroup:
        """A group of one-token answers to token 0, rewarded by token."""
        rng = random.Random(number)
        logs = self.table_VV[0].detach().log_softmax(-1)
        drawn = rng.choices(range(self.vocabulary), logs.exp().tolist(), k=size)
        template = make_group(number, size=1)
        traces = tuple(
            Trace(
                f"{number}-{slot}",
                (
                    Turn(
                        Completion("", (token,), (logs[token].item(),), "stop", slot),
                        Verdict(reward=rewards[token], outcome=Outcome.LEGAL, reward_version="t"),
                    ),
                ),
            )
            for slot, token in enumerate(drawn)
        )
        return replace(
            template,
            prompt_token_ids=(0,),
            policy=PolicyVersion(version, "0" * 64),
            sampling=Sampling(max_tokens=1),
            traces=traces,
        )
