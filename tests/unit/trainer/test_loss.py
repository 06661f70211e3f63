"""The loss against a float64 reference written from the formula, term by term."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from services.trainer.loss import clipped_loss  # noqa: E402

LOW, HIGH = 0.2, 0.28

tokens = st.lists(
    st.tuples(st.floats(-6, 0), st.floats(-6, 0), st.floats(-3, 3), st.integers(0, 3)),
    min_size=1,
    max_size=20,
)


def _reference(rows: list[tuple[float, float, float, int]]) -> float:
    total = 0.0
    for logprob, behaviour, advantage, _ in rows:
        ratio = math.exp(logprob - behaviour)
        total -= min(ratio * advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * advantage)
    return total / len(rows)


def _terms(rows: list[tuple[float, float, float, int]], logprobs: "torch.Tensor | None" = None):  # type: ignore[no-untyped-def]
    columns = [torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)]
    return clipped_loss(
        columns[0] if logprobs is None else logprobs, columns[1], columns[2], columns[3].long(),
        clip_low=LOW, clip_high=HIGH, normaliser=len(rows),
    )  # fmt: skip


@settings(deadline=None)
@given(tokens)
def test_loss_equals_the_formula(rows: list[tuple[float, float, float, int]]) -> None:
    assert _terms(rows).loss.item() == pytest.approx(_reference(rows), rel=1e-9, abs=1e-12)


def test_gradient_by_finite_differences() -> None:
    rows = [(-1.0, -1.1, 0.7, 0), (-2.0, -1.0, -0.4, 1), (-0.5, -1.5, 1.0, 0), (-0.3, -0.2, -1.0, 2)]
    logprobs = torch.tensor([r[0] for r in rows], dtype=torch.float64, requires_grad=True)
    _terms(rows, logprobs).loss.backward()
    for index in range(len(rows)):
        step = 1e-6
        up, down = ([(r[0] + s * (i == index), *r[1:]) for i, r in enumerate(rows)] for s in (step, -step))
        numeric = (_reference(up) - _reference(down)) / (2 * step)
        assert logprobs.grad[index].item() == pytest.approx(numeric, abs=1e-8)


def test_on_policy_the_gradient_is_reinforce() -> None:
    rows = [(-1.0, -1.0, 0.5, 0), (-2.0, -2.0, -1.5, 0)]
    logprobs = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    terms = _terms(rows, logprobs)
    terms.loss.backward()
    assert logprobs.grad.tolist() == pytest.approx([-0.25, 0.75])
    assert terms.ratio_max == 1.0
    assert terms.kl_sum == 0.0


def test_mismatch_looks_at_age_zero_alone() -> None:
    assert _terms([(-1.0, -1.5, 0.1, 1), (-1.0, -1.01, 0.1, 0)]).mismatch_age0_max == pytest.approx(0.01)


def test_clipping_is_counted_where_it_stops_the_gradient() -> None:
    terms = _terms([(0.0, -1.0, 1.0, 0), (0.0, -1.0, -1.0, 0), (-2.0, 0.0, -1.0, 0), (-2.0, 0.0, 1.0, 0)])
    assert (terms.clipped_high, terms.clipped_low) == (1, 1)
