"""A bandit with a known best arm, solved through the trainer's own step by every objective."""

from pathlib import Path

import pytest
import torch

from rookery.config.trainer import TrainerSettings
from services.trainer.training.step import RunningState, train_step
from tests.unit.trainer.bigram import Bigram
from tests.unit.trainer.reference import OBJECTIVES

REWARDS = (-1.0, -0.3, 0.0, -0.2)
BEST = 2


def _play(
    steps: int,
    *,
    rewards: tuple[float, ...] = REWARDS,
    size: int = 12,
    groups: int = 2,
    lr: float = 0.3,
    stale: int = 1,
    **changed: object,
) -> "torch.Tensor":
    """Probabilities of the arms after `steps`, each batch sampled by the policy `stale` steps before."""
    settings = TrainerSettings(
        model=Path(),
        run_dir=Path(),
        lr=lr,
        warmup_steps=0,
        max_grad_norm=1e9,
        kl_report_every=0,
        **changed,  # type: ignore[arg-type]
    )
    policy, state = Bigram(len(rewards)), RunningState()
    optimizer = torch.optim.Adam(policy.parameters, lr=lr)
    waiting = []
    for step in range(steps):
        waiting.append(
            [policy.sample(1000 * step + g, rewards=rewards, size=size, version=step) for g in range(groups)]
        )
        if len(waiting) > stale:
            batch = waiting.pop(0)
            stats = train_step(policy, optimizer, batch, step=step, settings=settings, state=state)
            state = state.after(batch, stats, step=step, zero_variance_share=0.0, settings=settings)
    return policy.table_VV[0].detach().softmax(-1)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_finds_the_best_arm(objective: str) -> None:
    assert _play(20, objective=objective, clip_low=0.2, clip_high=0.28)[BEST] > 0.8


@pytest.mark.parametrize("baseline", ["leave-one-out", "ema", "adaptive"])
def test_every_baseline_finds_the_best_arm(baseline: str) -> None:
    assert _play(20, baseline=baseline)[BEST] > 0.8


@pytest.mark.parametrize("kl", ["k1", "k2", "policy_reference", "k3", "reference_policy"])
def test_a_penalty_ends_at_the_optimum_of_its_divergence(kl: str) -> None:
    """Reward minus beta D(policy || uniform) is greatest at softmax(reward / beta); with
    D(uniform || policy) at arms beta / (V (c - reward)), c making them sum to 1."""
    rewards, beta = (-0.5, -0.5, 0.0, -0.5), 0.1
    played = _play(
        45, rewards=rewards, size=64, lr=0.1, stale=0, kl=kl, kl_coefficient=beta,
        objective="reinforce", baseline="leave-one-out", normalise=False,
    )  # fmt: skip
    mode_seeking = (torch.tensor(rewards) / beta).softmax(-1)
    best = mode_seeking if kl in ("k1", "k2", "policy_reference") else _mass_covering(rewards, beta)
    assert (mode_seeking - _mass_covering(rewards, beta)).abs().max() > 0.1, "the two can be told apart"
    assert (played - best).abs().max() < 0.04


def test_an_entropy_bonus_ends_at_the_softmax_of_the_rewards() -> None:
    """Reward + c H is greatest at softmax(reward / c)."""
    rewards, weight = (-0.5, -0.4, 0.0, -0.2), 0.2
    played = _play(
        45, rewards=rewards, size=64, lr=0.1, stale=0, entropy_coefficient=weight,
        objective="reinforce", baseline="leave-one-out", normalise=False,
    )  # fmt: skip
    best = (torch.tensor(rewards) / weight).softmax(-1)
    assert (played - best).abs().max() < 0.04


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_entropy_target_holds_the_entropy_where_it_would_vanish(objective: str) -> None:
    def entropy(**changed: object) -> float:
        played = _play(100, lr=0.1, objective=objective, clip_low=0.2, clip_high=0.28, **changed)
        return -(played * played.log()).sum().item()

    assert entropy() < 0.3
    assert entropy(entropy_target=0.8, entropy_rate=0.1) == pytest.approx(0.8, abs=0.25)


def _mass_covering(rewards: tuple[float, ...], beta: float) -> "torch.Tensor":
    values = torch.tensor(rewards, dtype=torch.float64)
    low, high = max(rewards) + 1e-9, max(rewards) + 10.0
    for _ in range(100):
        middle = (low + high) / 2
        too_much = (beta / (len(rewards) * (middle - values))).sum() > 1
        low, high = (middle, high) if too_much else (low, middle)
    return beta / (len(rewards) * (low - values))
