"""A whole batch's loss: weights, KL and cuts into micro-batches, on a policy known in full."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.config.trainer import TrainerSettings
from services.trainer.batches.micro_batches import collate, micro_batches
from services.trainer.batches.rows import Batch, Row, prepare_batch
from services.trainer.training.update import Objective
from tests.unit.trainer import reference
from tests.unit.trainer.bigram import Bigram
from tests.unit.trainer.groups import make_group
from tests.unit.trainer.reference import OBJECTIVES

VOCABULARY = 12
WEIGHTS = ("token", "sequence", "constant")
KINDS = ("none", "k1", "k2", "k3", "policy_reference", "reference_policy", "symmetric")


def _settings(**changed: object) -> TrainerSettings:
    return TrainerSettings(model=Path(), run_dir=Path(), **changed)  # type: ignore[arg-type]


def _batch(chosen: TrainerSettings, *, groups: int = 4) -> Batch:
    made = [
        make_group(n, vocabulary=VOCABULARY, finish_reason="length" if n == 1 else "stop")
        for n in range(groups)
    ]
    return prepare_batch(made, version=n % 2 if (n := groups) else 0, settings=chosen, averages=None)


def _gradient(chosen: TrainerSettings, batch: Batch, cut: list[list[Row]]) -> tuple["torch.Tensor", float]:
    policy = Bigram(VOCABULARY, seed=4)
    objective = Objective.of(
        chosen, coefficient=0.3, normaliser=batch.normaliser, entropy_coefficient=chosen.entropy_coefficient
    )
    total = 0.0
    for rows in cut:
        tensors = collate(rows)
        loss, _ = objective(
            policy.score(tensors, with_gradient=objective.with_gradient, reference=chosen.kl != "none"),
            tensors,
        )
        loss.backward()
        total += loss.item()
    return policy.table_VV.grad, total


@settings(max_examples=3 * settings.default.max_examples // 10)
@given(
    st.sampled_from(sorted(OBJECTIVES)),
    st.sampled_from(WEIGHTS),
    st.sampled_from(KINDS),
    st.sampled_from([0.0, 0.2]),
    st.integers(12, 60),
    st.lists(st.integers(0, 30), max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_gradient_is_the_same_for_every_cut_into_rows_and_micro_batches(
    name: str, weights: str, kl: str, entropy: float, row_tokens: int, cuts: list[int], rng
) -> None:
    how = {"objective": name, "loss_weights": weights, "kl": kl, "entropy_coefficient": entropy}
    whole_settings = _settings(**how, row_tokens=4096)
    whole = _batch(whole_settings)
    expected, loss = _gradient(whole_settings, whole, [list(whole.rows)])
    cut_settings = _settings(**how, row_tokens=row_tokens)
    batch = _batch(cut_settings)
    rows = list(batch.rows)
    rng.shuffle(rows)
    places = sorted({0, len(rows), *(c for c in cuts if c < len(rows))})
    pieces = [rows[a:b] for a, b in itertools.pairwise(places)]
    gradient, loss_of_pieces = _gradient(cut_settings, batch, pieces)
    assert torch.allclose(gradient, expected, rtol=1e-12, atol=1e-14)
    assert loss_of_pieces == pytest.approx(loss, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_the_loss_of_a_batch_equals_its_formula(name: str, weights: str) -> None:
    chosen = _settings(objective=name, loss_weights=weights, loss_constant=20)
    batch = _batch(chosen)
    scores = Bigram(VOCABULARY, seed=4).score(collate(list(batch.rows))).logprobs_N.tolist()
    completions, place = [], 0
    for completion in (c for row in batch.rows for c in row.completions):
        now = scores[place : place + len(completion.token_ids)]
        place += len(now)
        advantage = torch.tensor(completion.advantage).item()
        behaviour = torch.tensor(completion.logprobs).tolist()
        completions.append([(p, b, advantage) for p, b in zip(now, behaviour, strict=True)])
    if name in ("cispo", "reinforce"):
        losses = reference.truncated_reinforce(completions, chosen.ratio_cap)
    else:
        formula = reference.gspo if name == "gspo" else reference.ppo_clip
        losses = formula(completions, chosen.clip_low, chosen.clip_high, chosen.dual_clip)
    expected = {
        "token": reference.token_mean(losses),
        "sequence": reference.sequence_mean(losses),
        "constant": reference.constant_mean(losses, 20),
    }[weights]
    _, loss = _gradient(chosen, batch, micro_batches(batch.rows, tokens=40))
    assert loss == pytest.approx(expected, rel=1e-6)


def test_truncated_completions_are_neither_summed_nor_counted() -> None:
    kept, whole = (_batch(_settings(mask_truncated=mask, loss_weights="sequence")) for mask in (True, False))
    assert (kept.normaliser, whole.normaliser) == (15, 16)
    assert kept.tokens < whole.tokens


@pytest.mark.parametrize("kl", [k for k in KINDS if k not in ("none", "k1")])
def test_the_penalty_adds_its_mean_to_the_loss(kl: str) -> None:
    chosen, plain = _settings(kl=kl), _settings()
    batch = _batch(chosen)
    tensors = collate(list(batch.rows))
    policy = Bigram(VOCABULARY, seed=4)
    before = tensors.input_ids_1T.flatten()[tensors.predictor_N]
    p, q = policy.table_VV.log_softmax(-1), policy.reference_VV.log_softmax(-1)
    total = 0.0
    for previous, target in zip(before.tolist(), tensors.targets_N.tolist(), strict=True):
        if kl in ("k2", "k3"):
            total += reference.estimator(
                kl, math.exp(p[previous, target].item()), math.exp(q[previous, target].item())
            )
        else:
            total += reference.divergence(kl, p[previous].exp().tolist(), q[previous].exp().tolist())
    difference = (
        _gradient(chosen, batch, [list(batch.rows)])[1] - _gradient(plain, batch, [list(batch.rows)])[1]
    )
    assert difference == pytest.approx(0.3 * total / batch.tokens, rel=1e-9)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_the_entropy_bonus_has_the_gradient_of_its_formula(name: str) -> None:
    """-c dH/dz = c p (log p + H) for each token, over the tokens of the batch."""
    chosen, plain = _settings(objective=name, entropy_coefficient=0.2), _settings(objective=name)
    batch = _batch(chosen)
    tensors = collate(list(batch.rows))
    before = tensors.input_ids_1T.flatten()[tensors.predictor_N]
    weights = tensors.weight_N.double() / batch.normaliser
    logs = Bigram(VOCABULARY, seed=4).table_VV.detach().log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1, keepdim=True)
    slope = 0.2 * logs.exp() * (logs + entropy)
    expected = torch.zeros_like(slope).index_add(0, before, weights[:, None] * slope[before])
    (with_bonus, loss), (without, base) = (
        _gradient(each, batch, micro_batches(batch.rows, tokens=40)) for each in (chosen, plain)
    )
    torch.testing.assert_close(with_bonus - without, expected, rtol=1e-9, atol=1e-12)
    assert loss - base == pytest.approx(-0.2 * (weights @ entropy[before, 0]).item(), rel=1e-9)


def test_k1_is_taken_from_the_advantage_and_not_differentiated() -> None:
    chosen = _settings(kl="k1", objective="reinforce", ratio_cap=1e9)
    batch = _batch(chosen)
    tensors = collate(list(batch.rows))
    policy = Bigram(VOCABULARY, seed=4)
    scores = policy.score(tensors, reference=True)
    ratio = (scores.logprobs_N - tensors.behaviour_N).exp().detach()
    k1 = (scores.logprobs_N - scores.reference_logprobs_N).detach()
    loss = -(ratio * (tensors.advantages_N - 0.3 * k1) * scores.logprobs_N).sum() / batch.tokens
    loss.backward()
    gradient, _ = _gradient(chosen, batch, [list(batch.rows)])
    assert torch.allclose(gradient, policy.table_VV.grad, rtol=1e-9, atol=1e-12)


def test_a_penalty_without_a_reference_is_refused() -> None:
    chosen = _settings(kl="k3")
    tensors = collate(list(_batch(chosen).rows))
    objective = Objective.of(chosen, coefficient=0.1, normaliser=1)
    with pytest.raises(ValueError, match="KL 'k3' needs scores of a reference"):
        objective(Bigram(VOCABULARY).score(tensors), tensors)
