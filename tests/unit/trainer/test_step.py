"""The whole step: the default run's numbers, what it measures, and the base it is compared with."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery.advantages import group_advantages
from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import Row, ScoredCompletion
from services.trainer.distributed.process_group import World
from services.trainer.model.head import TokenScores, WithGradient
from services.trainer.model.policy import Policy
from services.trainer.records import report
from services.trainer.training import optimizer as adam
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.training.step import RunningState, StepStats, train_step, zero_variance_share
from services.trainer.training.update import Objective
from services.viewer.runs import RunFolder
from tests.unit.trainer.contents import contents
from tests.unit.trainer.groups import make_group

GOLDEN = [
    {"loss": 0.3411223888, "grad_norm": 0.1376907975, "entropy": 4.5351403130, "ratio_mean": 0.1617557102,
     "ratio_max": 0.7145150900, "clip_fraction_low": 0.6333333333, "clip_fraction_high": 0.0,
     "kl_behaviour": 1.65951249, "tokens": 90, "micro_batches": 2},
    {"loss": 0.2961304151, "grad_norm": 0.1509156525, "entropy": 4.5361636235, "ratio_mean": 0.1470742715,
     "ratio_max": 0.6228821278, "clip_fraction_low": 0.4230769231, "clip_fraction_high": 0.0,
     "kl_behaviour": 1.63325652, "tokens": 78, "micro_batches": 1},
    {"loss": 0.2967452630, "grad_norm": 0.1599235535, "entropy": 4.5380363036, "ratio_mean": 0.1270407612,
     "ratio_max": 0.6141256690, "clip_fraction_low": 0.5505617978, "clip_fraction_high": 0.0,
     "kl_behaviour": 1.76620642, "tokens": 89, "micro_batches": 2},
]  # fmt: skip
"""Three default steps on `_groups`, as clipping, weights and baselines gave them before they had a choice;
`kl_behaviour` since it is D(behaviour || policy)."""


def _settings(model: Path, folder: Path, **changed: Any) -> TrainerSettings:
    return TrainerSettings(
        model=model, run_dir=folder, device="cpu", micro_batch_tokens=100, row_tokens=64, **changed
    )


def _groups(step: int) -> list[TraceGroup]:
    return [
        make_group(
            10 * step + n,
            prompt_length=5 + n,
            version=max(0, step - n % 2),
            finish_reason="length" if n == 2 else "stop",
        )
        for n in range(6)
    ]


def _run(settings: TrainerSettings, steps: int) -> tuple[list[StepStats], RunningState, Policy]:
    policy, state, results = Policy(settings), RunningState(), []
    optimizer = adam.build(policy.parameters, lr=settings.lr)
    for step in range(steps):
        groups = _groups(step)
        result = train_step(policy, optimizer, groups, step=step, settings=settings, state=state)
        state = state.after(groups, result, step=step, zero_variance_share=0.0, settings=settings)
        results.append(result)
    return results, state, policy


def test_the_default_run_has_the_numbers_it_always_had(tiny_model: Path, tmp_path: Path) -> None:
    results, state, _ = _run(_settings(tiny_model, tmp_path), 3)
    assert state == RunningState()
    for result, golden in zip(results, GOLDEN, strict=True):
        row = result.row()
        assert {name: row[name] for name in golden} == pytest.approx(golden, rel=2e-4)


def test_the_figures_of_each_token_are_kept_within_a_limit(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, _, _ = _run(_settings(tiny_model, tmp_path), 3)
    kept_mb = _settings(tiny_model, tmp_path, ratios_mb=1)
    for step, result in enumerate(results):
        flat = [ratio for own in result.token_figures.values() for ratio in own.ratios]
        assert (len(flat), max(flat)) == (result.tokens, pytest.approx(result.losses["ratio_max"]))
        assert sum(flat) / len(flat) == pytest.approx(result.losses["ratio_mean"])
        report.write_token_figures(kept_mb, _groups(step), result.token_figures, version=step + 1)
        for group in _groups(step):
            kept = [result.token_figures.get(trace.id) for trace in group.traces]
            assert [own is None for own in kept] == [trace.completion.truncated for trace in group.traces]
            read = RunFolder("run", tmp_path, tmp_path).token_figures(
                step + 1, group.id, answers=len(group.traces)
            )
            assert read["ratios"] == [own and pytest.approx(own.ratios, abs=1e-4) for own in kept]
            computed = group_advantages(group.rewards, normalise=True)
            assert read["advantages"] == [
                own and pytest.approx([advantage] * len(own.ratios), abs=1e-4)
                for own, advantage in zip(kept, computed, strict=True)
            ]
    (tmp_path / "ratios" / "policy-v000002.jsonl.gz").write_bytes(b"0" * (1 << 20))
    report.write_token_figures(kept_mb, _groups(3), results[2].token_figures, version=4)
    assert {path.name[:14] for path in (tmp_path / "ratios").iterdir()} == {
        "policy-v000003",
        "policy-v000004",
    }
    monkeypatch.setattr(report, "MIB", 1)
    report.write_token_figures(kept_mb, _groups(3), results[2].token_figures, version=5)
    assert [path.name[:14] for path in (tmp_path / "ratios").iterdir()] == ["policy-v000005"]
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "ratios").touch()
    blocked_mb = _settings(tiny_model, blocked, ratios_mb=1)
    report.write_token_figures(blocked_mb, _groups(3), results[2].token_figures, version=6)
    assert "ratios and advantages of step 6 are not kept" in caplog.text
    assert _run(_settings(tiny_model, tmp_path, ratios_mb=0), 1)[0][0].token_figures == {}


def test_a_falling_rate_goes_on_where_a_stopped_run_was(tiny_model: Path, tmp_path: Path) -> None:
    settings = _settings(tiny_model, tmp_path, lr_schedule="cosine", max_steps=4, warmup_steps=1, lr=0.01)
    trainer = PolicyTrainer(settings, Policy(settings), World())
    rates, half = [], {}
    for step in range(4):
        half = half if step > 2 else contents(trainer.files())
        result = trainer.train_step(_groups(step), step=step, state=RunningState())
        rates.append(result.lr)
    falling = [0.01 + 0.99 * (1 + math.cos(math.pi * n / 3)) / 2 for n in range(3)]
    assert rates == pytest.approx([0.005, *(0.01 * part for part in falling)])
    for name, data in half.items():
        (tmp_path / name).write_bytes(data)
    again = PolicyTrainer(settings, Policy(settings), World())
    again.load(tmp_path)
    for step in range(2, 4):
        result = again.train_step(_groups(step), step=step, state=RunningState())
        assert result.lr == rates[step]
    assert contents(again.files()) == contents(trainer.files())


def test_a_row_is_flat_and_has_every_figure(tiny_model: Path, tmp_path: Path) -> None:
    settings = _settings(
        tiny_model, tmp_path, kl="k3", kl_schedule="adaptive", kl_target=1e-9, baseline="ema"
    )
    results, state, _ = _run(settings, 3)
    first, last = results[0].row(), results[-1].row()
    assert all(isinstance(value, int | float) and math.isfinite(value) for value in last.values())
    assert {"kl_behaviour_age0", "kl_behaviour_age1", "ess", "kl_penalty"} <= last.keys()
    assert first["kl_reference"] == pytest.approx(0.0, abs=1e-6), "an untrained adapter is the base"
    assert last["kl_reference"] > 1e-6
    weights = [result.kl_coefficient for result in results]
    assert weights == pytest.approx([0.02, 0.02 / 1.5, 0.02]), "down while the KL is 0, up once it is not"
    assert state.averages is not None
    assert 0.0 < last["ess"] <= 1.0


@pytest.mark.parametrize("kl", ["none", "policy_reference"])
def test_scoring_the_reference_leaves_the_adapter_as_it_was(
    kl: str, tiny_model: Path, tmp_path: Path
) -> None:
    policy = Policy(_settings(tiny_model, tmp_path, kl=kl))
    with torch.no_grad():
        for parameter in policy.parameters:
            parameter.normal_(std=0.05)
    batch = collate([Row((5, 6, 7), (ScoredCompletion((8, 9), (-1.0, -1.0), 1.0, 0),), 1.0)])
    plain = policy.score(batch).logprobs_N
    scores = policy.score(batch, reference=True, with_gradient=WithGradient())
    # The head has two ways: with a reference, and a shorter one without.
    assert torch.allclose(scores.logprobs_N, plain, atol=1e-6)
    assert torch.equal(policy.score(batch).logprobs_N, plain)
    with policy.model.disable_adapter():
        base = policy.score(batch).logprobs_N
    assert torch.allclose(scores.reference_logprobs_N, base, atol=1e-6)
    assert not torch.allclose(base, plain, atol=1e-3)
    assert all(parameter.requires_grad for parameter in policy.parameters)


def test_zero_variance_counts_what_dynamic_sampling_dropped() -> None:
    assert zero_variance_share(_groups(0), dropped=2, turn_rewards="sum") == 2 / 8


def _measured(rows: list[tuple[float, float, int]]) -> dict[str, float]:
    """Figures of tokens with (log p, log p behaviour, age)."""
    from services.trainer.training.statistics import MicroBatchStats, batch_stats

    settings = TrainerSettings(model=Path(), run_dir=Path())
    row = Row((1,), tuple(ScoredCompletion((2,), (b,), 1.0, age) for _, b, age in rows), 1.0)
    logprobs = torch.tensor([p for p, _, _ in rows])
    scores = TokenScores(logprobs, torch.full_like(logprobs, 0.5), torch.zeros(len(rows), 0))
    objective = Objective.of(settings, coefficient=0.0, normaliser=len(rows))
    halves = [collate([Row((1,), part, 1.0)]) for part in (row.completions[:1], row.completions[1:])]
    parts = [
        TokenScores(*(t[a:b] for t in (scores.logprobs_N, scores.entropy_N, scores.hidden_ND)))
        for a, b in ((0, 1), (1, len(rows)))
    ]
    return batch_stats(
        [MicroBatchStats.of(*objective(s, batch)[1].read()) for s, batch in zip(parts, halves, strict=True)]
    )


def test_kl_to_the_behaviour_policy_is_told_by_age() -> None:
    """The sample has each token as often as the behaviour policy draws it: the mean is the KL itself."""
    behaviour = (0.5, 0.25, 0.125, 0.125)
    policies = {0: (0.5, 0.3, 0.1, 0.1), 3: (0.01, 0.09, 0.3, 0.6)}
    rows = [
        (math.log(p), math.log(b), age)
        for age, policy in policies.items()
        for p, b in zip(policy, behaviour, strict=True)
        for _ in range(int(8 * b))
    ]
    row = _measured(rows)
    exact = {
        age: sum(b * math.log(b / p) for p, b in zip(policy, behaviour, strict=True))
        for age, policy in policies.items()
    }
    assert exact[3] > 1.0
    for age, value in exact.items():
        assert row[f"kl_behaviour_age{age}"] == pytest.approx(value, rel=1e-5)
    assert row["kl_behaviour"] == pytest.approx(sum(exact.values()) / 2, rel=1e-5)
    assert "kl_behaviour_age1" not in row


def test_the_effective_sample_size_falls_as_one_token_outweighs_the_others() -> None:
    assert _measured([(-1.0, -1.0, 0)] * 3)["ess"] == pytest.approx(1.0)
    ratios = [math.exp(2.0), 1.0, 1.0]
    expected = sum(ratios) ** 2 / (3 * sum(r * r for r in ratios))
    assert _measured([(-1.0, -3.0, 0), (-1.0, -1.0, 0), (-1.0, -1.0, 0)])["ess"] == pytest.approx(expected)
