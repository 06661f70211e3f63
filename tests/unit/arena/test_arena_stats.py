import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.stats import Bootstrap, Estimate, Ratio
from rookery.intervals import wilson

LEGAL = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@given(LEGAL, st.integers(0, 2**32))
@settings(max_examples=3 * settings.default.max_examples // 10)
def test_equal_sides_differ_by_exactly_nothing(legal: list[int], seed: int) -> None:
    side = Ratio.of(legal, [4] * len(legal))
    difference = Bootstrap({"a": side, "b": side}, seed=seed, resamples=200).difference("a", "b")
    assert difference.mean == 0.0
    assert difference.ci95 == (0.0, 0.0)


@given(LEGAL, LEGAL, st.integers(0, 2**32))
@settings(max_examples=3 * settings.default.max_examples // 10)
def test_intervals_hold_their_means_and_stay_in_range(a: list[int], b: list[int], seed: int) -> None:
    size = min(len(a), len(b))
    sides = {"a": Ratio.of(a[:size], [4] * size), "b": Ratio.of(b[:size], [4] * size)}
    bootstrap = Bootstrap(sides, seed=seed, resamples=500)
    for side in map(bootstrap.estimate, sides):
        assert side.ci95 is not None
        low, high = side.ci95
        assert 0 <= low <= high <= 1
        assert low - 1e-9 <= side.mean <= high + 1e-9 or size < 8


X = {"x": Ratio.of([0, 1, 3, 4], [4] * 4)}


def test_same_seed_same_figures() -> None:
    assert Bootstrap(X, seed=5).estimate("x") == Bootstrap(X, seed=5).estimate("x")
    first, second = (Bootstrap(X, seed=seed, resamples=40).estimate("x") for seed in (5, 6))
    assert first != second


def test_a_ratio_does_not_depend_on_what_is_measured_beside_it() -> None:
    other = Ratio.of([9.0] * 4, [1] * 4)
    alone = Bootstrap(X, seed=5).estimate("x")
    assert Bootstrap({"other": other, **X}, seed=5).estimate("x") == alone


def test_a_function_of_means_has_an_interval_too() -> None:
    shares = {"a": Ratio.of([1, 0, 1, 0], [1] * 4), "b": Ratio.of([0, 0, 1, 0], [1] * 4)}
    largest = Bootstrap(shares, seed=0).combine(lambda means: means.max(axis=1), ["a", "b"])
    assert largest.mean == 0.5
    assert largest.ci95 == (0.0, 1.0)


def _experiment(rng: np.random.Generator, *, positions: int, samples: int) -> tuple[Ratio, Ratio]:
    """Positions of uneven difficulty; the second policy is right 10 points more often on each."""
    skill = rng.beta(1.0, 1.0, positions) * 0.9
    sides = [Ratio.of(rng.binomial(samples, skill + gain), [samples] * positions) for gain in (0.0, 0.1)]
    return sides[0], sides[1]


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """95% of 200 experiments is 190 +- 3.1; the naive interval over answers would cover about 75%."""
    rng = np.random.default_rng(0)
    covered = {"before": 0, "difference": 0}
    naive = 0
    for seed in range(200):
        pair = _experiment(rng, positions=100, samples=8)
        bootstrap = Bootstrap({"before": pair[0], "after": pair[1]}, seed=seed, resamples=1000)
        estimates = {
            "before": bootstrap.estimate("before"),
            "difference": bootstrap.difference("after", "before"),
        }
        for name, truth in (("before", 0.45), ("difference", 0.1)):
            low, high = estimates[name].ci95
            covered[name] += low <= truth <= high
        rate = pair[0].mean
        naive += abs(rate - 0.45) <= 1.96 * (rate * (1 - rate) / 800) ** 0.5
    assert 181 <= covered["before"] <= 199
    assert 181 <= covered["difference"] <= 199
    assert naive < 168


def test_pairing_tightens_the_difference() -> None:
    before, after = _experiment(np.random.default_rng(1), positions=300, samples=8)
    shuffled = np.random.default_rng(2).permutation(300)
    unpaired = Ratio(after.sums[shuffled], after.counts[shuffled])
    sides = {"before": before, "paired": after, "unpaired": unpaired}
    bootstrap = Bootstrap(sides, seed=0, resamples=2000)
    intervals = {name: bootstrap.difference(name, "before").ci95 for name in ("paired", "unpaired")}
    widths = {name: high - low for name, (low, high) in intervals.items()}
    assert widths["paired"] < 0.6 * widths["unpaired"]


def test_a_ratio_resamples_its_denominator_too() -> None:
    """Two positions, one with a single legal answer: the ratio of sums, never a mean of means."""
    side = Ratio.of([0.9, 0.3], [1, 3])
    assert side.mean == pytest.approx(0.3)
    low, high = Bootstrap({"regret": side}, seed=0).estimate("regret").ci95
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.9))


def test_nothing_to_average_is_no_figure() -> None:
    nothing, something = Ratio.of([0.0] * 30, [0] * 30), Ratio.of([1.0] * 30, [1] * 30)
    bootstrap = Bootstrap({"nothing": nothing, "something": something}, seed=0, resamples=100)
    assert (
        bootstrap.estimate("nothing") == bootstrap.difference("something", "nothing") == Estimate(None, None)
    )
    assert bootstrap.estimate("something").mean == 1.0


def test_one_answer_among_many_positions_gives_a_mean_without_interval() -> None:
    side = Ratio.of([0.5] + [0.0] * 29, [1] + [0] * 29)
    estimate = Bootstrap({"regret": side}, seed=0, resamples=1000).estimate("regret")
    assert estimate.mean == 0.5
    assert estimate.ci95 is None


ONE_TO_EACH = {
    "none": Ratio.of([0] * 20, [1] * 20),
    "half": Ratio.of([1, 0] * 10, [1] * 20),
    "all": Ratio.of([1] * 20, [1] * 20),
}
FOUR_TO_EACH = {
    "none": Ratio.of([0] * 20, [4] * 20),
    "half": Ratio.of([1, 3] * 10, [4] * 20),
    "all": Ratio.of([4] * 20, [4] * 20),
}


@pytest.mark.parametrize("ratios", [ONE_TO_EACH, FOUR_TO_EACH])
def test_a_share_that_is_the_same_at_all_positions_has_wilsons_interval(ratios: dict[str, Ratio]) -> None:
    """0 and 20 of 20, as in the tables of Wilson's interval; the differences are Newcombe's."""
    bootstrap = Bootstrap(ratios, seed=0)
    assert bootstrap.estimate("none", share=True).ci95 == pytest.approx((0, 0.1611), abs=1e-4)
    assert bootstrap.estimate("all", share=True).ci95 == pytest.approx((0.8389, 1), abs=1e-4)
    assert bootstrap.difference("all", "none", share=True).ci95 == pytest.approx((0.7722, 1), abs=1e-4)
    assert bootstrap.difference("all", "all", share=True).ci95 == pytest.approx((-0.1611, 0.1611), abs=1e-4)
    assert bootstrap.difference("half", "half", share=True).ci95 == pytest.approx((-0.1611, 0.1611), abs=1e-4)
    low, high = bootstrap.difference("all", "half", share=True).ci95
    assert low < 0.5 - 0.1611 and high > 0.5
    assert bootstrap.estimate("all").ci95 == (1, 1)


def test_a_share_of_one_answer_to_each_position_is_binomial_and_one_of_several_is_not() -> None:
    one, four = Bootstrap(ONE_TO_EACH, seed=0), Bootstrap(FOUR_TO_EACH, seed=0)
    assert one.estimate("half", share=True).ci95 == pytest.approx((0.2993, 0.7007), abs=1e-4)
    assert four.estimate("half", share=True) == four.estimate("half")
    few = Bootstrap({"": Ratio.of([1] + [0] * 29, [1] + [0] * 29)}, seed=0)
    assert few.estimate("", share=True).ci95 == pytest.approx((0.2065, 1), abs=1e-4)


@pytest.mark.parametrize("truth", [0.02, 0.5, 0.97])
def test_wilsons_interval_covers_the_truth_as_often_as_it_says(truth: float) -> None:
    """Of 20 answers, exactly: the bootstrap covers a share of 0.02 in a third of the cases."""
    intervals = [wilson(right, 20) for right in range(21)]
    covered = sum(
        math.comb(20, right) * truth**right * (1 - truth) ** (20 - right)
        for right, (low, high) in enumerate(intervals)
        if low <= truth <= high
    )
    assert 0.93 <= covered <= 0.995


@pytest.mark.parametrize("sizes", [(0, 0), (2, 3)])
def test_ratios_of_unequal_or_no_positions_are_refused(sizes: tuple[int, int]) -> None:
    sides = {number: Ratio.of([0.0] * size, [1] * size) for number, size in enumerate(sizes)}
    with pytest.raises(ValueError, match="unequal or no positions"):
        Bootstrap(sides, seed=0)
