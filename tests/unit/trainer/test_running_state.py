"""What learning remembers: the KL coefficient, the averages, the alarm."""

import contextlib
import json
import logging
import math
from pathlib import Path
from statistics import fmean

import pytest
import torch

from rookery.advantages import compared_returns
from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.batches.advantages import RewardAverages
from services.trainer.losses.regularisers import (
    EntropyController,
    KlController,
    entropy_coefficient,
    kl_coefficient,
    updated_controller,
    updated_entropy_controller,
)
from services.trainer.training.step import RunningState, StepStats, train_step
from tests.unit.trainer.bigram import Bigram
from tests.unit.trainer.groups import make_episodes, make_group


def _settings(**changed: object) -> TrainerSettings:
    return TrainerSettings(model=Path(), run_dir=Path(), **{"kl": "k3", **changed})  # type: ignore[arg-type]


def test_fixed_stays() -> None:
    settings = _settings(kl_coefficient=0.1)
    assert kl_coefficient(None, step=0, settings=settings) == 0.1
    assert updated_controller(KlController(0.3, 0.3), 0.1, kl=99.0, settings=settings) is None


def _next(now: float, *, kl: float, settings: TrainerSettings) -> float:
    state = updated_controller(None, now, kl=kl, settings=settings)
    assert state is not None
    assert state.begun == settings.kl_coefficient
    return state.now


def test_warmup_is_linear_and_then_full() -> None:
    settings = _settings(kl_schedule="warmup", kl_coefficient=0.4, kl_warmup_steps=3)
    values = [kl_coefficient(None, step=step, settings=settings) for step in range(6)]
    assert values == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.2, 1.5), (0.151, 1.5), (0.149, 1.0), (0.068, 1.0), (0.066, 1 / 1.5), (0.0, 1 / 1.5)]
)
def test_adaptive_multiplies_outside_its_band_of_half_around_the_target(kl: float, factor: float) -> None:
    settings = _settings(kl_schedule="adaptive", kl_target=0.1)
    assert _next(0.02, kl=kl, settings=settings) == pytest.approx(0.02 * factor)


@pytest.mark.parametrize(("kl", "factor"), [(0.1, 1.0), (0.11, 1.01), (0.09, 0.99), (5.0, 1.02), (0.0, 0.98)])
def test_smooth_is_zieglers_proportional_controller(kl: float, factor: float) -> None:
    settings = _settings(kl_schedule="smooth", kl_target=0.1)
    assert _next(0.02, kl=kl, settings=settings) == pytest.approx(0.02 * factor)


@pytest.mark.parametrize("schedule", ["adaptive", "smooth"])
def test_a_controller_brings_a_divergence_that_answers_it_to_the_target(schedule: str) -> None:
    settings = _settings(kl_schedule=schedule, kl_target=0.1, kl_coefficient=1.0)
    now = 1.0
    for _ in range(400):
        now = _next(now, kl=0.02 / now, settings=settings)
    assert 0.1 / 1.51 < 0.02 / now < 0.1 * 1.51


def test_an_unreachable_target_ends_at_a_bound() -> None:
    settings = _settings(kl_schedule="adaptive", kl_coefficient=0.02)
    now = 0.02
    for _ in range(100):
        now = _next(now, kl=9.0, settings=settings)
    assert now == pytest.approx(30 * 0.02)
    for _ in range(100):
        now = _next(now, kl=0.0, settings=settings)
    assert now == pytest.approx(0.02 / 30)


def test_below_its_target_the_entropy_gains_weight_and_above_it_loses_it() -> None:
    settings = _settings(entropy_coefficient=0.1, entropy_target=0.5, entropy_rate=0.01)
    assert entropy_coefficient(None, settings=settings) == 0.1
    low, high, even = (
        updated_entropy_controller(None, entropy=entropy, settings=settings) for entropy in (0.1, 0.9, 0.5)
    )
    assert low == EntropyController(pytest.approx(0.104), pytest.approx(0.104 + 0.12), 0.1)
    assert high == EntropyController(pytest.approx(0.096), 0.0, 0.1)
    assert even == EntropyController(0.1, 0.1, 0.1)
    assert entropy_coefficient(low, settings=settings) == pytest.approx(0.224)
    assert updated_entropy_controller(low, entropy=None, settings=settings) == low, "a step without tokens"
    for entropy, bound in ((0.0, 10.0), (9.0, 0.0)):
        state = low
        for _ in range(5000):
            state = updated_entropy_controller(state, entropy=entropy, settings=settings)
        assert state == EntropyController(bound, bound, 0.1)


def test_a_weight_of_the_flags_wins_over_that_of_the_state() -> None:
    state = EntropyController(0.6, 0.7, 0.1)
    assert entropy_coefficient(state, settings=_settings(entropy_coefficient=0.1, entropy_target=1.0)) == 0.7
    other = _settings(entropy_coefficient=0.2, entropy_target=1.0)
    assert entropy_coefficient(state, settings=other) == 0.2
    again = updated_entropy_controller(state, entropy=1.0, settings=other)
    assert again == EntropyController(0.2, 0.2, 0.2)
    fixed = _settings(entropy_coefficient=0.1)
    assert entropy_coefficient(state, settings=fixed) == 0.1
    assert updated_entropy_controller(state, entropy=0.1, settings=fixed) is None


def test_the_reference_is_scored_when_penalised_or_reported() -> None:
    assert all(_settings().measures_kl(step) for step in range(5))
    reported = _settings(kl="none", kl_report_every=3)
    assert [reported.measures_kl(step) for step in range(5)] == [True, False, False, True, False]
    assert not _settings(kl="none", kl_report_every=0).measures_kl(0)


def _after(
    state: RunningState,
    share: float = 0.0,
    kl: float | None = None,
    group: TraceGroup = make_group(1),  # noqa: B008 - immutable
    **changed: object,
) -> RunningState:
    losses = {"entropy": 1.0} | ({} if kl is None else {"kl_reference": kl})
    stats = StepStats(
        losses, grad_norm=1.0, lr=0.1, tokens=9, micro_batches=1, optimizer_s=0.1, token_figures={},
        kl_coefficient=0.02, entropy_coefficient=0.0, forward_backward_s=0.1,
    )  # fmt: skip
    return state.after([group], stats, step=3, zero_variance_share=share, settings=_settings(**changed))


def test_a_step_moves_only_what_its_settings_use() -> None:
    assert _after(RunningState(), kl=9.0) == RunningState()
    adaptive = _after(RunningState(), kl=9.0, kl_schedule="adaptive", baseline="ema")
    assert adaptive.kl_controller == KlController(pytest.approx(0.03), 0.02)
    assert adaptive.averages is not None
    unmeasured = _after(RunningState(kl_controller=KlController(0.5, 0.02)), kl=None, kl_schedule="adaptive")
    assert unmeasured.kl_controller == KlController(0.5, 0.02), (
        "a batch without tokens says nothing about the KL"
    )


def test_the_averages_of_episodes_are_of_what_they_are_the_baseline_of() -> None:
    """Of the returns from each turn on, not of whole episodes."""
    group = make_episodes(1)
    returns = [r for peers in compared_returns(group.turn_rewards) for r in peers.returns]
    averages = _after(RunningState(), group=group, baseline="ema").averages
    assert averages is not None
    assert averages.mean == pytest.approx(fmean(returns))
    assert averages.mean != pytest.approx(fmean(group.rewards))


def test_what_a_step_does_not_use_is_forgotten() -> None:
    """Taken up again a thousand steps later, it would be another policy's."""
    before = RunningState(RewardAverages(0.1, 0.2, 0.3), kl_controller=KlController(0.5, 0.02))
    assert _after(before) == RunningState()


@pytest.mark.parametrize("schedule", ["adaptive", "smooth", "fixed"])
def test_a_divergence_that_is_no_number_moves_no_coefficient(schedule: str) -> None:
    """The penalty of the tokens that were sampled may be finite all the same."""
    policy = Bigram(12, seed=1)
    policy.reference_VV[:, 0] = -math.inf  # no group has token 0
    settings = _settings(kl_schedule=schedule, kl_report_every=1)
    groups = [make_group(n, vocabulary=12) for n in (1, 2)]
    optimizer = torch.optim.SGD(policy.parameters, lr=0.1)
    expected = pytest.raises(ArithmeticError, match=r"step 3: D\(policy .* is inf.*groups group-1, group-2$")
    with contextlib.nullcontext() if schedule == "fixed" else expected:
        train_step(policy, optimizer, groups, step=3, settings=settings, state=RunningState())


def test_it_survives_the_commit() -> None:
    state = RunningState(
        RewardAverages(0.1, 1 / 3, 1e-17, roles={"white": RewardAverages(0.3, 0.1, 0.0)}),
        kl_controller=KlController(0.1 + 0.2, 0.1),
        collapsed_steps=4,
        entropy_controller=EntropyController(1 / 7, 0.3, 0.0),
    )
    assert RunningState.of(json.loads(json.dumps(state.as_json()))) == state
    assert RunningState.of(json.loads(json.dumps(RunningState().as_json()))) == RunningState()
    assert RunningState.of(None) == RunningState()
    earlier = {key: value for key, value in state.as_json().items() if key != "entropy_coefficient"}
    assert RunningState.of(earlier).kl_controller == state.kl_controller, "a commit without this key"


def test_the_alarm_sounds_when_the_groups_have_collapsed_for_long(caplog: pytest.LogCaptureFixture) -> None:
    state = RunningState()
    with caplog.at_level(logging.ERROR):
        for share in (0.9, 0.95, 0.2, 1.0, 1.0):
            state = _after(state, share, collapse_share=0.9, collapse_steps=3)
        assert state.collapsed_steps == 2
        assert not caplog.records
        state = _after(state, 1.0, collapse_share=0.9, collapse_steps=3)
    assert state.collapsed_steps == 3
    assert "3 steps in a row, 90% or more of the groups had equal rewards" in caplog.text


def test_a_coefficient_of_the_flags_wins_over_what_was_remembered_of_another() -> None:
    def resumed(**changed: object) -> float:
        return kl_coefficient(KlController(0.9, 0.1), step=7, settings=_settings(**changed))

    assert resumed(kl_coefficient=0.1) == 0.1, "fixed"
    for schedule in ("adaptive", "smooth"):
        assert resumed(kl_coefficient=0.1, kl_schedule=schedule) == 0.9
        assert resumed(kl_coefficient=0.4, kl_schedule=schedule) == 0.4
