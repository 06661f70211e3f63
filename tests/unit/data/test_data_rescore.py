"""Before and after: the arithmetic of a comparison, against numbers worked out by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chess_datasets.traces.rescore import SchemeComparison, rescored, rescored_rows
from rookery.advantages import group_advantages
from rookery.errors import InvalidInput
from rookery.trace import Outcome, TraceGroup, Verdict
from tests.builders import changed
from tests.unit.rookery.records import GROUP

rewards = st.lists(st.floats(-2, 1), min_size=1, max_size=9)


def group(before: Sequence[float], *, outcome: Outcome = Outcome.LEGAL) -> TraceGroup:
    (trace, *_) = GROUP.traces
    traces = [
        replace(changed(trace, verdict=Verdict(reward, outcome, "delta-1")), id=f"t{i}")
        for i, reward in enumerate(before)
    ]
    return replace(GROUP, traces=tuple(traces))


def verdicts(after: Sequence[float], *, outcome: Outcome = Outcome.LEGAL) -> list[Verdict]:
    return [Verdict(reward, outcome, "best-1") for reward in after]


def compared(*pairs: tuple[Sequence[float], Sequence[float]]) -> SchemeComparison:
    comparison = SchemeComparison()
    for before, after in pairs:
        comparison.add(group(before), verdicts(after))
    return comparison


def test_advantages_are_rewards_less_their_mean() -> None:
    rows = list(rescored_rows(group([0.0, -0.5, -1.0]), verdicts([1.0, 0.0, 0.5])))
    assert [row.advantage_before for row in rows] == [0.5, 0.0, -0.5]
    assert [row.advantage_after for row in rows] == [0.5, -0.5, 0.0]
    assert [(row.trace_id, row.policy) for row in rows] == [(f"t{i}", GROUP.policy.number) for i in range(3)]


def test_signs_are_counted() -> None:
    summary = compared(([0.0, -0.5, -1.0, -0.5], [1.0, 0.0, 0.0, 1.0])).summary()
    # before: + 0 - 0; after: + - - +
    assert summary["advantage_signs"] == {"flipped": 0, "silenced": 0, "awakened": 2, "kept": 2}
    summary = compared(([0.0, -1.0], [0.0, 1.0]), ([0.0, -1.0], [0.5, 0.5])).summary()
    assert summary["advantage_signs"] == {"flipped": 2, "silenced": 2, "awakened": 0, "kept": 0}


def test_groups_that_teach_nothing_are_counted() -> None:
    same, other = [0.1, 0.1, 0.1], [0.1, 0.2, 0.3]
    summary = compared((same, same), (same, other), (other, same), (other, other)).summary()
    assert summary["groups_without_variance"] == {"before": 2, "after": 2, "both": 1}
    assert (summary["groups"], summary["answers"]) == (4, 12)


def test_what_floats_leave_of_zero_has_no_sign() -> None:
    before = [0.1, 0.2, 0.3]
    assert 0 < abs(group_advantages(before, normalise=False)[1]) < 1e-9
    assert compared((before, before)).summary()["advantage_signs"]["kept"] == 3


def test_means_are_told_by_outcome() -> None:
    comparison = compared(([0.0, -1.0], [1.0, 0.0]))
    comparison.add(group([-1.5], outcome=Outcome.NO_BOX), verdicts([-1.2], outcome=Outcome.NO_BOX))
    assert comparison.summary()["mean_reward"] == {
        "all": {"answers": 3, "before": -0.833333, "after": -0.066667},
        "legal": {"answers": 2, "before": -0.5, "after": 0.5},
        "no_box": {"answers": 1, "before": -1.5, "after": -1.2},
    }
    assert comparison.summary()["reward_versions"] == {"before": {"delta-1": 3}, "after": {"best-1": 3}}


@given(rewards, st.floats(0.1, 3), st.floats(-1, 1))
def test_a_scheme_that_only_scales_changes_nothing(before: list[float], scale: float, shift: float) -> None:
    if max(before) - min(before) < 1e-6:
        return
    summary = compared((before, [scale * reward + shift for reward in before])).summary()
    assert summary["advantage_signs"]["flipped"] == 0
    assert summary["reward_correlation"] == pytest.approx(1, abs=1e-6)


def test_correlation() -> None:
    assert compared(([1, 2, 3, 4], [2, 1, 4, 3])).summary()["reward_correlation"] == 0.6
    assert compared(([0.1, 0.1, 0.1], [0.0, 1.0, 0.5])).summary()["reward_correlation"] is None


@given(rewards)
def test_advantages_add_up_to_nothing(values: list[float]) -> None:
    assert sum(group_advantages(values, normalise=False)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_named(reward: float) -> None:
    with pytest.raises(InvalidInput, match=f"reward {reward} of trace 't1' is not finite"):
        compared(([0.0, reward], [1.0, 0.0]))


async def test_what_only_the_policy_can_tell_is_refused() -> None:
    with pytest.raises(InvalidInput, match="influence is measured while the policy"):
        await anext(rescored([GROUP], None, scheme="delta+0.5*influence"))
