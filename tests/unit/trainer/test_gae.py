"""Advantages of tokens against the sum that defines them, and the value loss against its formula."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.batches.advantages import gae, token_rewards
from services.trainer.losses.surrogate import value_losses

numbers = st.floats(-3.0, 3.0)
tokens = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12)
shares = st.sampled_from([0.0, 0.3, 0.95, 1.0])


@given(tokens, shares.filter(bool), shares)
def test_gae_is_the_sum_that_defines_it(pairs: list[tuple[float, float]], gamma: float, lam: float) -> None:
    rewards, values = zip(*pairs, strict=True)
    after = (*values[1:], 0.0)
    deltas = [r + gamma * v1 - v for r, v, v1 in zip(rewards, values, after, strict=True)]
    expected = [
        sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(pairs))
    ]
    assert gae(rewards, values, gamma=gamma, lambda_=lam) == pytest.approx(expected, abs=1e-12)


@given(tokens, shares.filter(bool))
def test_with_lambda_1_the_return_is_the_discounted_sum_of_rewards(
    pairs: list[tuple[float, float]], gamma: float
) -> None:
    rewards, values = zip(*pairs, strict=True)
    returns = [a + v for a, v in zip(gae(rewards, values, gamma=gamma, lambda_=1.0), values, strict=True)]
    expected = [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]
    assert returns == pytest.approx(expected, abs=1e-12)


def test_a_perfect_critic_leaves_nothing_to_gain() -> None:
    assert gae([0.0, 0.0, 0.7], [0.7, 0.7, 0.7], gamma=1.0, lambda_=0.9) == pytest.approx([0.0] * 3)


def test_the_penalty_is_spread_and_the_reward_comes_last() -> None:
    assert token_rewards(2.0, [0.1, -0.2, 0.3], coefficient=0.5) == pytest.approx([-0.05, 0.1, 1.85])
    assert token_rewards(2.0, [0.1, 0.1], coefficient=0.0) == [0.0, 2.0]


def _by_hand(value: float, old: float, wanted: float, clip: float) -> float:
    kept = old + max(-clip, min(clip, value - old))
    return 0.5 * max((value - wanted) ** 2, (kept - wanted) ** 2)


def _columns() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(200, dtype=torch.float64, generator=generator) for _ in range(3)]


def test_the_value_loss_is_the_larger_error() -> None:
    values, old, returns = _columns()
    losses, clipped = value_losses(values, old, returns, clip=0.3)
    columns = [column.tolist() for column in (values, old, returns)]
    assert losses.tolist() == pytest.approx([_by_hand(*row, 0.3) for row in zip(*columns, strict=True)])
    assert 0 < clipped.sum() < 200
    plain, none = value_losses(values, old, returns, clip=0.0)
    assert torch.equal(plain, 0.5 * (values - returns) ** 2)
    assert not none.any()


def test_the_value_losss_gradient_is_a_finite_difference_and_stops_where_it_is_clipped() -> None:
    values, old, returns = _columns()
    values.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: value_losses(v, old, returns, clip=0.3)[0], values)
    losses, clipped = value_losses(values, old, returns, clip=0.3)
    losses.sum().backward()
    assert values.grad[clipped].abs().max() == 0.0
    assert values.grad[~clipped].abs().min() > 0.0
