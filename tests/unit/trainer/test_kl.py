"""KL estimators and divergences: values, what their gradients really are, and the chunked head."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.losses import regularisers as kl
from services.trainer.model.base_model import Head
from services.trainer.model.head import TokenScores, WithGradient, score_tokens
from tests.unit.trainer import reference

KINDS = ("policy_reference", "reference_policy", "symmetric")
ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}

logits = st.lists(st.tuples(st.floats(-8, 8), st.floats(-8, 8)), min_size=2, max_size=9)


def _distributions(pairs: list[tuple[float, float]]) -> tuple["torch.Tensor", "torch.Tensor"]:
    columns = zip(*pairs, strict=True)
    p, q = (torch.tensor(column, dtype=torch.float64).log_softmax(-1) for column in columns)
    return p, q


@pytest.mark.parametrize("kind", KINDS)
@given(pairs=logits)
def test_a_divergence_equals_its_formula_and_is_never_negative(
    kind: str, pairs: list[tuple[float, float]]
) -> None:
    p, q = _distributions(pairs)
    value = kl.divergence(kind, p[None], q[None]).item()
    expected = reference.divergence(kind, p.exp().tolist(), q.exp().tolist())
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert value >= -1e-12
    assert kl.divergence(kind, p[None], p[None]).item() == 0.0


@pytest.mark.parametrize("kind", ESTIMATORS)
@given(p=st.floats(-9, 0), q=st.floats(-9, 0))
def test_an_estimator_equals_its_formula(kind: str, p: float, q: float) -> None:
    value = ESTIMATORS[kind](torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64))
    expected = reference.estimator(kind, math.exp(p), math.exp(q))
    assert value.item() == pytest.approx(expected, rel=1e-7, abs=1e-9)
    assert kind == "k1" or value.item() >= -1e-300


@given(pairs=logits)
def test_k1_and_k3_have_the_mean_of_the_divergence(pairs: list[tuple[float, float]]) -> None:
    p, q = _distributions(pairs)
    exact = kl.divergence("policy_reference", p[None], q[None]).item()
    for estimator in (kl.k1, kl.k3):
        assert (p.exp() * estimator(p, q)).sum().item() == pytest.approx(exact, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "whose"), [("k1", None), ("k2", "policy_reference"), ("k3", "reference_policy")]
)
def test_the_mean_gradient_of_an_estimator_in_the_loss(kind: str, whose: str | None) -> None:
    """Over all tokens, weighted by their probability: nothing for k1, another divergence for k3."""
    at, q = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    q = q.log_softmax(-1)

    def gradient(value) -> "torch.Tensor":  # type: ignore[no-untyped-def]
        table = at.clone().requires_grad_()
        value(table.log_softmax(-1)).backward()
        return table.grad

    mean = gradient(lambda p: (p.exp().detach() * ESTIMATORS[kind](p, q)).sum())
    expected = gradient(lambda p: kl.divergence(whose, p[None], q[None]).sum()) if whose else torch.zeros(7)
    assert torch.allclose(mean, expected.double(), atol=1e-12)


def _inputs() -> dict:  # type: ignore[type-arg]
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    weight = draw(6, 3)
    return {
        "head": Head(lambda hidden: hidden @ weight.T),
        "hidden_ND": draw(5, 3),
        "targets_N": torch.randint(6, (5,), generator=generator),
        "reference_ND": draw(5, 3),
        "vocabulary": 6,
        "temperature": 0.7,
    }


def _score(with_gradient: WithGradient, **changed: object) -> TokenScores:
    inputs = {**_inputs(), **changed}
    return score_tokens(
        inputs.pop("head"),
        inputs.pop("hidden_ND"),
        inputs.pop("targets_N"),
        with_gradient=with_gradient,
        **inputs,
    )


@pytest.mark.parametrize("chunk", [10**9, 6 * 2 * 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_chunked_head_gives_the_numbers_of_the_whole_one(
    kind: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.trainer.model.head._CHUNK_LOGITS", chunk)
    inputs = _inputs()
    p = (inputs["head"](inputs["hidden_ND"]) / 0.7).log_softmax(-1)
    q = (inputs["head"](inputs["reference_ND"]) / 0.7).log_softmax(-1)
    scores = _score(WithGradient(kl=kind))
    for n in range(5):
        probabilities = p[n].exp().tolist(), q[n].exp().tolist()
        assert scores.kl_N[n].item() == pytest.approx(reference.divergence(kind, *probabilities))
        assert scores.reference_kl_N[n].item() == pytest.approx(
            reference.divergence("policy_reference", *probabilities)
        )
    target = inputs["targets_N"][:, None]
    assert torch.allclose(scores.logprobs_N, p.gather(-1, target)[:, 0])
    assert torch.allclose(scores.reference_logprobs_N, q.gather(-1, target)[:, 0])
    assert torch.allclose(scores.entropy_N, -(p.exp() * p).sum(-1))


@pytest.mark.parametrize("chunk", [10**9, 6 * 2 * 2])
@pytest.mark.parametrize("what", [*KINDS, "entropy", "logprobs"])
def test_gradients_of_the_head_by_finite_differences(
    what: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.trainer.model.head._CHUNK_LOGITS", chunk)
    with_gradient = WithGradient(entropy=what == "entropy", kl=what if what in KINDS else None)
    column = {"entropy": "entropy_N", "logprobs": "logprobs_N"}.get(what, "kl_N")

    def value(hidden: "torch.Tensor") -> "torch.Tensor":
        return getattr(_score(with_gradient, hidden_ND=hidden), column)

    assert torch.autograd.gradcheck(value, _inputs()["hidden_ND"].requires_grad_())


@pytest.mark.parametrize("learned", [WithGradient(kl="policy_reference"), WithGradient(entropy=True)])
def test_the_head_never_sees_more_rows_than_a_chunk(
    learned: WithGradient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither forward nor when the backward pass computes it again: the full logits never exist."""
    monkeypatch.setattr("services.trainer.model.head._CHUNK_LOGITS", 6 * 2 * 2)
    head, seen = _inputs()["head"], []

    def counting(hidden: "torch.Tensor") -> "torch.Tensor":
        seen.append(len(hidden))
        return head(hidden)

    hidden = _inputs()["hidden_ND"].requires_grad_()
    scores = _score(learned, hidden_ND=hidden, head=Head(counting))
    forward = len(seen)
    (scores.logprobs_N.sum() + (scores.entropy_N if learned.entropy else scores.kl_N).sum()).backward()
    assert max(seen) == 2
    assert 2 * forward == 12 >= len(seen) > forward  # the reference need not be computed again for entropy


def test_without_being_wanted_entropy_and_reference_carry_no_gradient() -> None:
    hidden = _inputs()["hidden_ND"].requires_grad_()
    scores = _score(WithGradient(), hidden_ND=hidden)
    assert scores.logprobs_N.requires_grad
    assert not scores.entropy_N.requires_grad
    assert not scores.reference_kl_N.requires_grad
    assert scores.kl_N is None


def test_a_kl_without_a_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="'reference_policy' needs the hidden states"):
        _score(WithGradient(kl="reference_policy"), reference_ND=None)


def test_log_probabilities_are_float32_under_bfloat16_weights() -> None:
    """Their sum over the vocabulary is 1 to float32's precision; bfloat16's would miss by a hundredth."""
    head = torch.nn.Linear(8, 1024, bias=False, dtype=torch.bfloat16)
    hidden = torch.randn(1, 8, dtype=torch.bfloat16).expand(1024, 8)
    scores = score_tokens(Head(head), hidden, torch.arange(1024), vocabulary=1024, temperature=1.0)
    assert scores.logprobs_N.dtype == torch.float32
    assert scores.logprobs_N.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
