"""Losses of pairs against their formulas, by hand and in float64, and gradients by finite differences."""

import math

import pytest
import torch

from services.trainer.finetune.dpo import dpo_loss, dpo_margin
from services.trainer.reward_model.training import bradley_terry_loss


def _doubles(*rows: list[float]) -> list[torch.Tensor]:
    return [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in rows]


def _log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


def test_bradley_terry_is_the_formula() -> None:
    chosen, rejected, margin = _doubles([1.5, -0.2, 40.0], [0.5, 0.7, -40.0], [0.0, 0.3, 0.0])
    expected = [-_log_sigmoid(1.0), -_log_sigmoid(-0.2 - 0.7 - 0.3), -_log_sigmoid(80.0)]
    assert bradley_terry_loss(chosen, rejected, margin).tolist() == pytest.approx(expected, rel=1e-12)


def test_an_even_pair_costs_the_log_of_two() -> None:
    even = torch.zeros(1, dtype=torch.float64)
    assert bradley_terry_loss(even, even, even).item() == pytest.approx(math.log(2), rel=1e-12)
    assert dpo_loss(even).item() == pytest.approx(math.log(2), rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_dpo_is_equation_7(beta: float, smoothing: float) -> None:
    policy, other, base, base_other = _doubles([-3.0, -9.0], [-5.0, -4.0], [-3.5, -8.0], [-4.0, -6.5])
    margins = [
        beta * (math.log(math.exp(w - w0)) - math.log(math.exp(x - x0)))
        for w, x, w0, x0 in zip(*(t.tolist() for t in (policy, other, base, base_other)), strict=True)
    ]
    expected = [-(1 - smoothing) * _log_sigmoid(m) - smoothing * _log_sigmoid(-m) for m in margins]
    margin = dpo_margin(policy, other, base, base_other, beta=beta)
    assert margin.tolist() == pytest.approx(margins)
    assert dpo_loss(margin, label_smoothing=smoothing).tolist() == pytest.approx(expected, rel=1e-12)


def test_gradients_are_finite_differences() -> None:
    four = _doubles([-3.0, -9.0], [-5.0, -4.0], [-3.5, -8.0], [-4.0, -6.5])
    assert torch.autograd.gradcheck(lambda *t: dpo_loss(dpo_margin(*t, beta=0.7), label_smoothing=0.1), four)
    assert torch.autograd.gradcheck(bradley_terry_loss, four[:3])


def test_smoothing_is_least_where_the_odds_are_those_of_the_labels() -> None:
    # With a share e of wrong labels, the best margin is the log-odds log((1 - e) / e).
    margin = torch.tensor([math.log(0.8 / 0.2)], dtype=torch.float64, requires_grad=True)
    dpo_loss(margin, label_smoothing=0.2).sum().backward()
    assert margin.grad.abs().item() < 1e-12
