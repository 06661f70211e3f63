import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.arena.stats import Ratio, compare

LEGAL = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@given(LEGAL, st.integers(0, 2**32))
@settings(max_examples=30)
def test_equal_sides_differ_by_exactly_nothing(legal: list[int], seed: int) -> None:
    side = Ratio.of(legal, [4] * len(legal))
    compared = compare({"rate": (side, side)}, seed=seed, resamples=200)["rate"]
    assert compared.difference.mean == 0.0
    assert compared.difference.ci95 == (0.0, 0.0)


@given(LEGAL, LEGAL, st.integers(0, 2**32))
@settings(max_examples=30)
def test_intervals_hold_their_means_and_stay_in_range(a: list[int], b: list[int], seed: int) -> None:
    size = min(len(a), len(b))
    pair = (Ratio.of(a[:size], [4] * size), Ratio.of(b[:size], [4] * size))
    compared = compare({"rate": pair}, seed=seed, resamples=500)["rate"]
    for side in (compared.before, compared.after):
        assert side.ci95 is not None
        low, high = side.ci95
        assert 0 <= low <= high <= 1
        assert low - 1e-9 <= side.mean <= high + 1e-9 or size < 8


def test_same_seed_same_figures() -> None:
    pair = (Ratio.of([0, 1, 3, 4], [4] * 4), Ratio.of([1, 1, 4, 4], [4] * 4))
    assert compare({"x": pair}, seed=5) == compare({"x": pair}, seed=5)
    assert compare({"x": pair}, seed=5, resamples=40) != compare({"x": pair}, seed=6, resamples=40)


def test_a_pair_does_not_depend_on_what_is_measured_beside_it() -> None:
    pair = (Ratio.of([0, 1, 3, 4], [4] * 4), Ratio.of([1, 1, 4, 4], [4] * 4))
    other = (Ratio.of([9.0] * 4, [1] * 4), Ratio.of([2.0] * 4, [1] * 4))
    alone = compare({"x": pair}, seed=5)["x"]
    assert compare({"other": other, "x": pair}, seed=5)["x"] == alone


def _experiment(rng: np.random.Generator, *, positions: int, samples: int) -> tuple[Ratio, Ratio]:
    """Positions of uneven difficulty; the second policy is right 10 points more often on each."""
    skill = rng.beta(1.0, 1.0, positions) * 0.9
    sides = [Ratio.of(rng.binomial(samples, skill + gain), [samples] * positions) for gain in (0.0, 0.1)]
    return sides[0], sides[1]


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """95% of 400 experiments is 380 +- 4.4; the naive interval over answers would cover about 75%."""
    rng = np.random.default_rng(0)
    covered = {"before": 0, "difference": 0}
    naive = 0
    for seed in range(400):
        pair = _experiment(rng, positions=100, samples=8)
        compared = compare({"rate": pair}, seed=seed, resamples=1000)["rate"]
        for name, truth in (("before", 0.45), ("difference", 0.1)):
            low, high = getattr(compared, name).ci95
            covered[name] += low <= truth <= high
        rate = pair[0].mean
        naive += abs(rate - 0.45) <= 1.96 * (rate * (1 - rate) / 800) ** 0.5
    assert 362 <= covered["before"] <= 395
    assert 362 <= covered["difference"] <= 395
    assert naive < 330


def test_pairing_tightens_the_difference() -> None:
    before, after = _experiment(np.random.default_rng(1), positions=300, samples=8)
    shuffled = np.random.default_rng(2).permutation(300)
    unpaired = Ratio(after.sums[shuffled], after.counts[shuffled])
    compared = compare({"paired": (before, after), "unpaired": (before, unpaired)}, seed=0, resamples=2000)
    widths = {name: c.difference.ci95[1] - c.difference.ci95[0] for name, c in compared.items()}
    assert widths["paired"] < 0.6 * widths["unpaired"]


def test_a_ratio_resamples_its_denominator_too() -> None:
    """Two positions, one with a single legal answer: the ratio of sums, never a mean of means."""
    side = Ratio.of([0.9, 0.3], [1, 3])
    assert side.mean == pytest.approx(0.3)
    low, high = compare({"regret": (side, side)}, seed=0)["regret"].before.ci95
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.9))


def test_nothing_to_average_is_no_figure() -> None:
    nothing, something = Ratio.of([0.0] * 30, [0] * 30), Ratio.of([1.0] * 30, [1] * 30)
    compared = compare({"regret": (nothing, something)}, seed=0, resamples=100)["regret"]
    assert compared.before.mean is None
    assert compared.before.ci95 is None
    assert compared.difference.mean is None
    assert compared.difference.ci95 is None
    assert compared.after.mean == 1.0


def test_one_answer_among_many_positions_gives_a_mean_without_interval() -> None:
    side = Ratio.of([0.5] + [0.0] * 29, [1] + [0] * 29)
    estimate = compare({"regret": (side, side)}, seed=0, resamples=1000)["regret"].before
    assert estimate.mean == 0.5
    assert estimate.ci95 is None


@pytest.mark.parametrize("sizes", [(0, 0), (2, 3)])
def test_pairs_of_unequal_or_no_positions_are_refused(sizes: tuple[int, int]) -> None:
    before, after = (Ratio.of([0.0] * size, [1] * size) for size in sizes)
    with pytest.raises(ValueError, match="unequal or no positions"):
        compare({"x": (before, after)}, seed=0)
