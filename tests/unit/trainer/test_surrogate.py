"""Every objective against its formula in plain floats, values and gradients."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rookery.config.trainer import TrainerSettings
from services.trainer.losses.surrogate import RatioBounds, Surrogate, surrogate_losses
from tests.unit.trainer import reference

LOW, HIGH, CAP, DUAL = 0.2, 0.28, 2.0, 3.0
BOUNDS = RatioBounds(LOW, HIGH, CAP, DUAL)

logprobs = st.floats(-6, 0)
completions = st.lists(
    st.lists(st.tuples(logprobs, logprobs, st.floats(-3, 3)), min_size=1, max_size=6), min_size=1, max_size=5
)


def _expected(name: str, rows: list, at: list | None = None) -> list[float]:  # type: ignore[type-arg]
    if name in ("cispo", "reinforce"):
        losses = reference.truncated_reinforce(rows, CAP, at)
    else:
        losses = (reference.gspo if name == "gspo" else reference.ppo_clip)(rows, LOW, HIGH, DUAL)
    return [loss for row in losses for loss in row]


def _surrogate(
    name: str, rows: list, *, grad: bool = False, bounds: RatioBounds = BOUNDS
) -> tuple[Surrogate, "torch.Tensor"]:  # type: ignore[type-arg]
    columns = [torch.tensor(c, dtype=torch.float64) for c in zip(*(t for r in rows for t in r), strict=True)]
    numbers = torch.tensor([i for i, row in enumerate(rows) for _ in row])
    columns[0].requires_grad_(grad)
    return surrogate_losses(name, *columns, numbers, bounds), columns[0]


@pytest.mark.parametrize("name", reference.OBJECTIVES)
@given(rows=completions)
def test_losses_equal_the_formula(name: str, rows: list) -> None:  # type: ignore[type-arg]
    assert _surrogate(name, rows)[0].losses_N.tolist() == pytest.approx(
        _expected(name, rows), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("name", reference.OBJECTIVES)
def test_gradients_by_finite_differences(name: str) -> None:
    rows = [
        [(-1.0, -1.1, 0.7), (-2.0, -1.0, 0.7), (-0.5, -1.8, 0.7)],
        [(-0.3, -0.2, -1.0), (-0.3, -2.0, -1.0)],
        [(-0.1, -4.0, -1.0)],
        [(-1.0, -1.05, 0.3)],
    ]
    surrogate, at = _surrogate(name, rows, grad=True)
    surrogate.losses_N.sum().backward()
    flat = 0
    for c, row in enumerate(rows):
        for t in range(len(row)):
            up, down = (_moved(rows, c, t, by) for by in (1e-6, -1e-6))
            numeric = (sum(_expected(name, up, rows)) - sum(_expected(name, down, rows))) / 2e-6
            assert at.grad[flat].item() == pytest.approx(numeric, abs=1e-8)
            flat += 1


def _moved(rows: list, completion: int, token: int, by: float) -> list:  # type: ignore[type-arg]
    return [
        [(p + by * ((c, t) == (completion, token)), b, a) for t, (p, b, a) in enumerate(row)]
        for c, row in enumerate(rows)
    ]


@pytest.mark.parametrize("name", reference.OBJECTIVES)
def test_on_policy_the_gradient_is_reinforce(name: str) -> None:
    rows = [[(-1.0, -1.0, 0.5)], [(-2.0, -2.0, -1.5)]]
    surrogate, at = _surrogate(name, rows, grad=True)
    surrogate.losses_N.sum().backward()
    assert at.grad.tolist() == pytest.approx([-0.5, 1.5])
    assert surrogate.ratio_N.tolist() == [1.0, 1.0]


def test_clipping_is_counted_where_it_stops_the_gradient() -> None:
    rows = [[(0.0, -1.0, 1.0)], [(0.0, -1.0, -1.0)], [(-2.0, 0.0, -1.0)], [(-2.0, 0.0, 1.0)]]
    surrogate, at = _surrogate("grpo", rows, grad=True)
    surrogate.losses_N.sum().backward()
    assert surrogate.high_N.tolist() == [True, False, False, False]
    assert surrogate.low_N.tolist() == [False, False, True, False]
    assert (at.grad == 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_no_stale_token_outweighs_the_batch(name: str) -> None:
    """A token that has become e^8 times as likely, under a negative advantage: e^8 = 2,981 fresh ones."""
    rows = [[(-1.0, -9.0, -1.0)], [(-1.0, -1.0, -1.0)], [(-1.0, -2.0, -1.0)], [(-1.0, -9.0, 1.0)]]
    surrogate, at = _surrogate(name, rows, grad=True)
    surrogate.losses_N.sum().backward()
    assert surrogate.losses_N.tolist() == pytest.approx([DUAL, 1.0, math.e, -1.0 - HIGH])
    assert at.grad.tolist() == pytest.approx([0.0, 1.0, math.e, 0.0])
    assert surrogate.dual_N.tolist() == [True, False, False, False]


def test_a_capped_ratio_keeps_its_gradient() -> None:
    surrogate, at = _surrogate("cispo", [[(0.0, -3.0, 1.0)]], grad=True)
    surrogate.losses_N.sum().backward()
    assert surrogate.high_N.tolist() == [True]
    assert at.grad.item() == -CAP


def test_gspo_weighs_a_completion_by_the_geometric_mean_of_its_ratios() -> None:
    surrogate, _ = _surrogate("gspo", [[(-1.0, -1.5, 1.0), (-1.0, -0.7, 1.0)], [(-1.0, -1.0, 1.0)]])
    assert surrogate.ratio_N.tolist() == pytest.approx([math.exp(0.1), math.exp(0.1), 1.0])


def test_gspos_default_clip_lets_earlier_versions_teach() -> None:
    """Log-ratios of completions spread as they do two versions later: docs/experiments.md."""
    settings = TrainerSettings(model=Path(), run_dir=Path(), objective="gspo")
    generator = torch.Generator().manual_seed(0)
    logprobs = 0.022 * torch.randn(2000, generator=generator) - 1.0
    advantages = torch.randn(2000, generator=generator)

    def cut(low: float, high: float) -> float:
        args = (
            logprobs,
            torch.full((2000,), -1.0),
            advantages,
            torch.arange(2000),
            RatioBounds(low, high, CAP),
        )
        surrogate = surrogate_losses("gspo", *args)
        return (surrogate.low_N | surrogate.high_N).float().mean().item()

    assert cut(settings.clip_low, settings.clip_high) < 0.1
    assert cut(3e-4, 4e-4) > 0.45, "all whose ratio lies on the side that the clip looks at"


@pytest.mark.parametrize("name", reference.OBJECTIVES)
def test_no_ratio_is_too_large_for_a_gradient(name: str) -> None:
    """exp(100) is infinite in float32, and infinity times 0 no number."""
    logprobs = torch.tensor([-0.1, -0.1, -0.1, -200.0], requires_grad=True)
    behaviour, advantages = (torch.tensor([-200.0, -200.0, -200.0, -0.1]), torch.tensor([1.0, 0.0, -1e-3, 1]))
    surrogate = surrogate_losses(name, logprobs, behaviour, advantages, torch.arange(4), BOUNDS)
    surrogate.losses_N.sum().backward()
    assert torch.isfinite(surrogate.losses_N).all()
    assert torch.isfinite(surrogate.ratio_N.square()).all()
    assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("name", reference.OBJECTIVES)
@given(rows=completions)
def test_masks_drop_tokens_and_completions_whose_ratio_is_outside(name: str, rows: list) -> None:  # type: ignore[type-arg]
    """Against IcePop's M(r) f and a rejected sequence, each by plain autograd on the unmasked losses."""
    masked = replace(BOUNDS, token_mask=(0.5, 5.0), sequence_mask=(0.7, 1.4))
    logs = [p - b for row in rows for p, b, _ in row]
    means = [sum(p - b for p, b, _ in row) / len(row) for row in rows for _ in row]
    factors = torch.tensor(
        [
            float(0.5 <= math.exp(log) <= 5.0 and 0.7 <= math.exp(mean) <= 1.4)
            for log, mean in zip(logs, means, strict=True)
        ],
        dtype=torch.float64,
    )
    (plain, at), (surrogate, logprobs) = (
        _surrogate(name, rows, grad=True, bounds=bounds) for bounds in (BOUNDS, masked)
    )
    (factors * plain.losses_N).sum().backward()
    surrogate.losses_N.sum().backward()
    assert torch.allclose(surrogate.losses_N, factors * plain.losses_N)
    assert torch.allclose(logprobs.grad, at.grad)
    assert surrogate.masked_N is not None
    assert surrogate.masked_N.tolist() == [not factor for factor in factors]
    assert plain.masked_N is None


@pytest.mark.parametrize(
    ("bounds", "masked"),
    [
        ({"token_mask": (0.5, 0.0)}, [False, True, False, False]),
        ({"token_mask": (0.0, 5.0)}, [True, False, False, False]),
        ({"sequence_mask": (0.99, 0.0)}, [False, False, False, True]),
        ({"sequence_mask": (0.0, 1.01)}, [True, True, True, False]),
    ],
)
def test_each_end_of_a_mask_stands_alone(bounds: dict[str, tuple[float, float]], masked: list[bool]) -> None:
    rows = [[(-1.0, -4.0, 1.0), (-2.0, -1.0, -1.0), (-1.0, -1.0, 1.0)], [(-1.0, -0.9, 1.0)]]
    surrogate, _ = _surrogate("grpo", rows, bounds=replace(BOUNDS, **bounds))
    assert surrogate.masked_N is not None
    assert surrogate.masked_N.tolist() == masked
