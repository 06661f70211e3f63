"""The figures of the noise of rewards: their extremes are known."""

import numpy as np
import pytest

from bench.reward.noise import GROUP, Group, Measured, advantages, centred, close_table, cosines, ordered
from rookery.advantages import group_advantages

TRUTH = [[-0.01 * n for n in range(GROUP)], [0.0, -1.0] * (GROUP // 2)]
GROUPS = [Group("", tuple(map(str, range(GROUP))), tuple(truth)) for truth in TRUTH]


def test_the_cosine_is_1_for_the_truth_and_0_for_what_has_nothing_to_do_with_it() -> None:
    truth = centred(TRUTH)
    assert cosines(3 * truth, truth, seed=0) == pytest.approx(1.0)
    across = np.array([[1.0, -1.0, -1.0, 1.0] * 2] * 2)
    assert cosines(across, truth, seed=0)[0] == pytest.approx(0.0)


def test_division_turns_away_from_the_truth_where_groups_are_unlike() -> None:
    truth = centred(TRUTH)
    divided, floored, plain = (
        cosines(advantages(TRUTH, floor), truth, seed=0)[0] for floor in (0.0, 0.2, None)
    )
    assert divided < floored < plain == pytest.approx(1.0)
    assert advantages(TRUTH, 0.2)[0] == pytest.approx(
        group_advantages(TRUTH[0], normalise=True, sigma_floor=0.2)
    )


def test_pairs_in_order_are_counted_and_equal_ones_by_half() -> None:
    assert ordered(GROUPS, TRUTH, [0, 1]) == 1.0
    assert ordered(GROUPS, [[-r for r in own] for own in TRUTH], [0, 1]) == 0.0
    assert ordered(GROUPS, [[0.0] * GROUP] * 2, [0, 1]) == 0.5


def test_close_groups_are_those_of_the_fewest_nodes() -> None:
    rows = [Measured("1,000 nodes", TRUTH, 1.0), Measured("more", TRUTH, 2.0)]
    table = close_table("good", GROUPS, rows[0], rows[1:], regret=0.1)
    assert "1 of 2 groups" in str(table.title)
