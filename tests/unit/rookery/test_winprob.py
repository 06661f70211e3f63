"""The win probability is Lichess's, monotone, bounded and fair to both sides."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.trace import Evaluation
from rookery.winprob import LICHESS_K, win_probability


@pytest.mark.parametrize(
    ("cp", "percent"),
    [(0, 50.0), (50, 54.6), (100, 59.1), (200, 67.6), (300, 75.1), (500, 86.3), (1000, 97.5)],
)
def test_agrees_with_the_published_table(cp: int, percent: float) -> None:
    assert 100 * win_probability(Evaluation(cp=cp)) == pytest.approx(percent, abs=0.06)


@given(st.integers(-20_000, 20_000), st.integers(-20_000, 20_000))
def test_more_is_never_less(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert win_probability(Evaluation(cp=low)) <= win_probability(Evaluation(cp=high))


@given(st.integers(-20_000, 20_000))
def test_the_two_sides_share_one_point(cp: int) -> None:
    both = win_probability(Evaluation(cp=cp)) + win_probability(Evaluation(cp=-cp))
    assert math.isclose(both, 1.0)


def test_mate_is_the_ceiling_however_near() -> None:
    assert {win_probability(Evaluation(mate=n)) for n in (1, 5, 40)} == {win_probability(Evaluation(cp=1000))}
    assert win_probability(Evaluation(mate=-1)) == win_probability(Evaluation(cp=-1000))


def test_k_is_a_setting() -> None:
    novice = win_probability(Evaluation(cp=100), k=0.002)
    assert 0.5 < novice < win_probability(Evaluation(cp=100), k=LICHESS_K)


def test_no_score_is_no_half() -> None:
    with pytest.raises(ValueError, match="without a score"):
        win_probability(Evaluation())
