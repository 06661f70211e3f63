import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.advantages import group_advantages

rewards = st.lists(st.floats(-2, 1, allow_nan=False), min_size=2, max_size=16)


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


def test_equal_rewards_teach_nothing() -> None:
    assert group_advantages([-1.2] * 8, normalise=True) == (0.0,) * 8
