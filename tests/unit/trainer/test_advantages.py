import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.advantages import group_advantages, leave_one_out
from services.trainer.batches.advantages import RewardAverages, advantages, updated_averages

rewards = st.lists(st.floats(-2, 1, allow_nan=False), min_size=2, max_size=16)
batches = st.lists(rewards, min_size=1, max_size=5)


@given(rewards, st.booleans())
def test_advantages_sum_to_zero(values: list[float], normalise: bool) -> None:
    assert abs(math.fsum(group_advantages(values, normalise=normalise))) < 1e-6


@given(rewards, st.floats(-5, 5, allow_nan=False))
def test_a_constant_added_to_every_reward_changes_nothing(values: list[float], shift: float) -> None:
    before = group_advantages(values, normalise=False)
    after = group_advantages([v + shift for v in values], normalise=False)
    assert after == pytest.approx(before, abs=1e-9)


@given(rewards)
def test_a_better_reward_never_gets_a_smaller_advantage(values: list[float]) -> None:
    advantages = group_advantages(values, normalise=True)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert all(advantages[a] <= advantages[b] for a, b in itertools.pairwise(order))


def test_normalised_advantages_have_unit_deviation() -> None:
    advantages = group_advantages([-1.2, -0.3, -0.1, 0.0], normalise=True)
    assert math.fsum(a * a for a in advantages) / 4 == pytest.approx(1.0, abs=1e-3)


def test_a_floor_damps_groups_of_nearly_equal_rewards_and_no_others() -> None:
    close, apart = [-0.01, 0.0, -0.02, -0.01], [-1.2, -0.3, -0.1, 0.0]
    for baseline in ("group-mean", "leave-one-out"):
        plain, floored = (
            advantages([close, apart], baseline=baseline, normalise=True, averages=None, sigma_floor=floor)
            for floor in (0.0, 0.05)
        )
        assert floored[1] == plain[1]
        deviation = math.sqrt(0.0002 / 4)
        assert floored[0] == pytest.approx([a * (deviation + 1e-4) / 0.0501 for a in plain[0]])
    centred = advantages([close], baseline="group-mean", normalise=False, averages=None, sigma_floor=0.05)
    assert centred == [pytest.approx([0.0, 0.01, -0.01, 0.0])]


def test_with_a_moving_average_the_floor_is_that_of_the_whole_batch() -> None:
    known, batch = RewardAverages(-0.01, 0.0, 0.0), [[-0.01, 0.0], [-0.02, -0.01]]
    for floor, divisor in ((0.0, math.sqrt(0.0002 / 4)), (0.05, 0.05)):
        (first, _) = advantages(batch, baseline="ema", normalise=True, averages=known, sigma_floor=floor)
        assert first == pytest.approx([0.0, 0.01 / (divisor + 1e-4)])


def test_equal_rewards_teach_nothing() -> None:
    assert group_advantages([-1.2] * 8, normalise=True) == (0.0,) * 8
    assert leave_one_out([-1.2] * 8, normalise=True) == (0.0,) * 8


@given(rewards)
def test_leave_one_out_subtracts_the_mean_of_the_others(values: list[float]) -> None:
    expected = [v - (math.fsum(values) - v) / (len(values) - 1) for v in values]
    assert leave_one_out(values, normalise=False) == pytest.approx(expected, abs=1e-12)


def test_a_single_completion_has_no_others_to_be_compared_with() -> None:
    for baseline in ("group-mean", "leave-one-out"):
        assert advantages([[0.7]], baseline=baseline, normalise=False, averages=None) == [(0.0,)]
    known = RewardAverages(0.2, 0.1, 0.1)
    for baseline in ("ema", "adaptive"):
        ((value,),) = advantages([[0.7]], baseline=baseline, normalise=False, averages=known)
        assert value == pytest.approx(0.5)


def test_the_moving_average_tells_groups_of_equal_rewards_apart() -> None:
    values = advantages(
        [[1.0, 1.0], [0.0, 0.0]], baseline="ema", normalise=False, averages=RewardAverages(0.25, 0, 0)
    )
    assert values == [(0.75, 0.75), (-0.25, -0.25)]


def test_no_reward_moves_its_own_moving_average() -> None:
    known = RewardAverages(0.0, 0.1, 0.1)
    for baseline in ("ema", "adaptive"):
        low, high = (
            advantages([[r, 0.2, 0.3]], baseline=baseline, normalise=False, averages=known)[0][0]
            for r in (0.0, 1.0)
        )
        assert high - low == pytest.approx(1.0), "the baseline is that of the other completions"


def test_adaptive_goes_from_the_groups_own_mean_to_the_average_with_the_noise() -> None:
    group, average = [0.0, 0.4, 0.8], 0.1

    def of(within: float, between: float) -> tuple[float, ...]:
        known = RewardAverages(average, within, between)
        return advantages([group], baseline="adaptive", normalise=False, averages=known)[0]

    assert of(0.0, 1.0) == pytest.approx(leave_one_out(group, normalise=False))
    assert of(1.0, 0.0) == pytest.approx([r - average for r in group])
    # v = 0.2 / 2, b = 0.3 - 0.2 / 3: s = 0.3; the others of 0.0 have the mean 0.6.
    assert of(0.2, 0.3)[0] == pytest.approx(-(0.7 * 0.6 + 0.3 * 0.1))


@given(batches, batches, st.sampled_from(["ema", "adaptive"]))
def test_normalised_by_the_batch_no_advantage_is_beyond_its_size(
    first: list[list[float]], second: list[list[float]], baseline: str
) -> None:
    """Also where the steps before had no variance at all."""
    known = updated_averages(None, first, decay=0.9)
    values = advantages(second, baseline=baseline, normalise=True, averages=known)
    if baseline == "ema":
        count = sum(map(len, second))
        assert all(abs(v) <= math.sqrt(count) + 1e-9 for group in values for v in group)
    assert all(math.isfinite(v) for group in values for v in group)


@given(st.lists(batches, min_size=1, max_size=4))
def test_averages_follow_the_formula_and_survive_json_bit_by_bit(history: list[list[list[float]]]) -> None:
    known, mean = None, None
    for batch in history:
        known = updated_averages(known, batch, decay=0.75)
        seen = math.fsum(itertools.chain(*batch)) / sum(map(len, batch))
        mean = seen if mean is None else 0.75 * mean + 0.25 * seen
    assert known is not None
    assert known.mean == pytest.approx(mean, abs=1e-12)
    again = json.loads(json.dumps([known.mean, known.within, known.between]))
    assert RewardAverages(*again) == known
    assert 0.0 <= known.shrinkage(4) <= 1.0
