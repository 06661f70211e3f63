"""A whole step of PPO against its formulas in plain Python floats, the gradient by finite differences."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.training.step import RunningState, train_step
from tests.unit.trainer.bigram import Bigram
from tests.unit.trainer.groups import make_group

VOCABULARY = 5
LOW, HIGH, GAMMA, LAMBDA = 0.2, 0.3, 0.9, 0.7
VALUE, ENTROPY, KL = 0.5, 0.03, 0.2

Table = list[list[float]]


class Critic(Bigram):
    """The value of a token is linear in the logits that stand before it, as a head's is in hidden states."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY, seed=3)
        generator = torch.Generator().manual_seed(5)
        self.head = torch.nn.Parameter(torch.randn(VOCABULARY, dtype=torch.float64, generator=generator))

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [self.table_VV, self.head]

    def values(self, hidden: "torch.Tensor") -> "torch.Tensor":
        return hidden @ self.head


def _log_softmax(logits: list[float]) -> list[float]:
    total = math.log(sum(map(math.exp, logits)))
    return [x - total for x in logits]


def _value(table: Table, head: list[float], before: int) -> float:
    return sum(x * w for x, w in zip(table[before], head, strict=True))


def _advantages(rewards: list[float], values: list[float]) -> list[float]:
    """arXiv 1506.02438, eq. 16: the sum over all that follows, written out."""
    ahead = [*values[1:], 0.0]
    deltas = [r + GAMMA * n - v for r, n, v in zip(rewards, ahead, values, strict=True)]
    return [
        sum((GAMMA * LAMBDA) ** k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(deltas))
    ]


def _loss(
    table: Table,
    head: list[float],
    old: tuple[Table, list[float]],
    base: Table,
    *,
    groups: Any,
    kl: str,
    whiten: bool,
) -> float:
    """1707.06347 eq. 9 with clipped values, an entropy bonus and a KL penalty, over the mean token."""
    tokens: list[tuple[int, int, float, float, float, float]] = []
    for group in groups:
        for trace in group.traces:
            ids = trace.completion.token_ids
            befores = [group.prompt_token_ids[-1], *ids[:-1]]
            values = [_value(*old, before) for before in befores]
            rewards = [0.0] * len(ids)
            rewards[-1] = trace.verdict.reward
            if kl == "k1":
                for t, (before, token) in enumerate(zip(befores, ids, strict=True)):
                    gap = _log_softmax(old[0][before])[token] - _log_softmax(base[before])[token]
                    rewards[t] -= KL * gap
            own = _advantages(rewards, values)
            returns = [a + v for a, v in zip(own, values, strict=True)]
            tokens += zip(befores, ids, trace.completion.logprobs, own, values, returns, strict=True)
    advantages = [token[3] for token in tokens]
    if whiten:
        mean = sum(advantages) / len(advantages)
        deviation = math.sqrt(sum((a - mean) ** 2 for a in advantages) / len(advantages)) + 1e-8
        advantages = [(a - mean) / deviation for a in advantages]
    total = 0.0
    for (before, token, behaviour, _, old_value, ret), advantage in zip(tokens, advantages, strict=True):
        logs, base_logs = _log_softmax(table[before]), _log_softmax(base[before])
        ratio = math.exp(logs[token] - behaviour)
        gain = min(ratio * advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * advantage)
        total -= max(gain, 3.0 * advantage) if advantage < 0 else gain  # 1912.09729 eq. 5, the default
        value = _value(table, head, before)
        kept = old_value + min(max(value - old_value, -0.2), 0.2)
        total += VALUE * max((value - ret) ** 2, (kept - ret) ** 2) / 2
        total += ENTROPY * sum(math.exp(x) * x for x in logs)
        if kl == "k3":
            x = base_logs[token] - logs[token]
            total += KL * (math.exp(x) - 1 - x)
    return total / len(tokens)


def _groups() -> list[TraceGroup]:
    groups = [make_group(number, vocabulary=VOCABULARY, size=3) for number in range(3)]
    return [replace(group, prompt_token_ids=group.prompt_token_ids[-1:]) for group in groups]


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("kl", ["none", "k1", "k3"])
def test_loss_and_gradient_are_those_of_the_formulas(kl: str, whiten: bool) -> None:
    """In the second epoch: then values and ratios are clipped, against the values of before the step."""
    settings = TrainerSettings(
        model=Path(), run_dir=Path(), objective="ppo", clip_low=LOW, clip_high=HIGH, gamma=GAMMA,
        gae_lambda=LAMBDA, whiten=whiten, value_clip=0.2, value_coefficient=VALUE, ppo_epochs=2,
        entropy_coefficient=ENTROPY, kl=kl, kl_coefficient=KL, max_grad_norm=1e9, warmup_steps=0, lr=0.3,
        micro_batch_tokens=12,
    )  # fmt: skip
    policy, groups = Critic(), _groups()
    seen: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []

    class Noting(torch.optim.SGD):
        def step(self, closure: None = None) -> None:
            seen.append(
                ([p.detach().clone() for p in policy.parameters], [p.grad.clone() for p in policy.parameters])
            )
            super().step()

    result = train_step(
        policy, Noting(policy.parameters, lr=0.3), groups, step=0, settings=settings, state=RunningState()
    )
    before = (seen[0][0][0].tolist(), seen[0][0][1].tolist())
    base = policy.reference_VV.tolist()
    losses = [
        _loss(table.tolist(), head.tolist(), before, base, groups=groups, kl=kl, whiten=whiten)
        for (table, head), _ in seen
    ]
    assert result.losses["loss"] == pytest.approx(sum(losses) / 2, rel=1e-6)
    assert ("kl_penalty" in result.losses) == (kl != "none")
    for point, gradient in seen:
        for which, (weights, slope) in enumerate(zip(point, gradient, strict=True)):
            for place in range(0, weights.numel(), 3):
                moved = []
                for by in (1e-6, -1e-6):
                    both = [p.clone() for p in point]
                    both[which].view(-1)[place] += by
                    table, head = (p.tolist() for p in both)
                    moved.append(_loss(table, head, before, base, groups=groups, kl=kl, whiten=whiten))
                found = (moved[0] - moved[1]) / 2e-6
                assert slope.view(-1)[place].item() == pytest.approx(found, rel=2e-5, abs=2e-7)
