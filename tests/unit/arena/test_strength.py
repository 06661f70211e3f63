"""Elo, sequential tests and joint fits, against closed forms, tables by hand, and simulations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.strength.fit import Rating, fit
from arena.strength.pentanomial import ELO, SCORES, Elo, Pentanomial, expected_score
from arena.strength.sprt import Sprt

COUNTS = st.tuples(*[st.integers(0, 200)] * 5).filter(lambda counts: sum(counts) > 0)
VALUES = np.array(SCORES)
REPEATS = settings.default.max_examples
"""Of a simulation: as for examples, `make check` tries a quarter of those of `make test`."""


def pairs_of(elo: float, draws: float, opening: float) -> np.ndarray:
    """The probabilities of the five pair scores, with openings that favour one side by +-`opening` Elo."""
    probabilities = np.zeros(5)
    for bias in (-opening, opening):
        games = []
        for own in (elo + bias, elo - bias):
            score = expected_score(own)
            drawn = min(draws, 2 * min(score, 1 - score))
            games.append(np.array([1 - score - drawn / 2, drawn, score - drawn / 2]))
        probabilities += np.convolve(*games) / 2
    return probabilities


def true_elo(probabilities: np.ndarray) -> float:
    mean = float(probabilities @ VALUES)
    return ELO * math.log(mean / (1 - mean))


def normalised(probabilities: np.ndarray) -> float:
    mean = float(probabilities @ VALUES)
    return (mean - 0.5) / math.sqrt(2 * float(probabilities @ (VALUES - mean) ** 2)) * 800 / math.log(10)


def test_a_pentanomial_worked_by_hand() -> None:
    # 12 pairs: mean (2/4 + 3/2 + 4*3/4 + 2) / 12 = 7/12. Squared deviations in twelfths: 49, 2*16, 3*1, 4*4,
    # 2*25 = 150, so the variance is 150/144/12 = 0.0868 and its root over sqrt(12) is 0.08505.
    match = Pentanomial((1, 2, 3, 4, 2))
    assert match.score == pytest.approx(7 / 12)
    assert match.variance == pytest.approx(150 / 144 / 12)
    assert match.elo.value == pytest.approx(400 * math.log10(7 / 5))
    low, high = (7 / 12 + sign * 1.959964 * 0.0850517 for sign in (-1, 1))
    assert match.elo.low == pytest.approx(-400 * math.log10(1 / low - 1), rel=1e-4)
    assert match.elo.high == pytest.approx(-400 * math.log10(1 / high - 1), rel=1e-4)
    assert match.normalised_elo.value == pytest.approx(0.2 * 800 / math.log(10))
    assert match.superiority == pytest.approx(
        0.5 * (1 + math.erf((1 / 12) / 0.0850517 / math.sqrt(2))), rel=1e-5
    )


@pytest.mark.parametrize(("score", "elo"), [(0.75, 190.85), (0.5, 0.0), (0.25, -190.85)])
def test_elo_equals_the_closed_form(score: float, elo: float) -> None:
    quarters = round(score * 4)
    counts = [0] * 5
    counts[quarters - 1] = counts[quarters + 1] = 50
    assert Pentanomial(tuple(counts)).elo.value == pytest.approx(elo, abs=0.01)


@given(COUNTS)
def test_the_opponents_elo_is_the_negative(counts: tuple[int, ...]) -> None:
    own, other = Pentanomial(counts).elo, Pentanomial(counts[::-1]).elo
    assert (own.value is None) == (other.value is None)
    for bound, mirrored in ((own.value, other.value), (own.low, other.high), (own.high, other.low)):
        assert bound == (None if mirrored is None else pytest.approx(-mirrored, abs=1e-6))


def test_all_wins_give_a_bound_and_no_number() -> None:
    elo = Pentanomial((0, 0, 0, 0, 30)).elo
    # 30 pairs won in a row happen in 5% of cases if a pair is won with 0.05^(1/30), and draw or lose no less.
    assert elo == Elo(None, pytest.approx(-400 * math.log10(1 / 0.05 ** (1 / 30) - 1)), None)
    assert Pentanomial((30, 0, 0, 0, 0)).elo == Elo(None, None, pytest.approx(-elo.low))
    assert Pentanomial((0, 0, 0, 0, 0)).elo == Elo(None, None, None)


def test_equal_pairs_are_not_taken_for_certainty() -> None:
    few, many = Pentanomial((0, 0, 4, 0, 0)).elo, Pentanomial((0, 0, 400, 0, 0)).elo
    assert few.value == many.value == 0
    assert few.high > 100 > many.high > 0


@pytest.mark.parametrize(("elo", "draws", "opening"), [(0, 0.3, 0), (60, 0.4, 150), (-200, 0.1, 100)])
def test_intervals_cover_known_strength(elo: float, draws: float, opening: float) -> None:
    rng, probabilities = np.random.default_rng(1), pairs_of(elo, draws, opening)
    truth, units = true_elo(probabilities), normalised(probabilities)
    matches = [Pentanomial(tuple(map(int, row))) for row in rng.multinomial(150, probabilities, size=1000)]
    assert 0.93 < np.mean([m.elo.low < truth < m.elo.high for m in matches]) < 0.97
    assert 0.93 < np.mean([m.normalised_elo.low < units < m.normalised_elo.high for m in matches]) < 0.97


@pytest.mark.parametrize("elo", [300, 700])
def test_bounds_of_clean_sweeps_are_seldom_wrong(elo: float) -> None:
    rng, probabilities = np.random.default_rng(2), pairs_of(elo, 0.1, 0)
    swept = [row for row in rng.multinomial(4, probabilities, size=20_000) if row[4] == 4]
    bound = Pentanomial((0, 0, 0, 0, 4)).elo.low
    assert len(swept) / 20_000 < 0.05 or bound < true_elo(probabilities)


@pytest.mark.parametrize("model", ["normalized", "logistic"])
@pytest.mark.parametrize("shape", [(0, 0.3, 0), (80, 0.2, 150)], ids=["balanced", "one-sided"])
def test_sprt_errs_no_more_often_than_it_says(model: str, shape: tuple[float, float, float]) -> None:
    low, high = pairs_of(*shape), pairs_of(shape[0] + 60, *shape[1:])
    unit = normalised if model == "normalized" else true_elo
    test = Sprt(unit(low), unit(high), alpha=0.05, beta=0.1, model=model)
    matches = 2 * REPEATS
    margin = 3 * math.sqrt(0.05 * 0.95 / matches), 3 * math.sqrt(0.1 * 0.9 / matches)
    assert _accepted(test, low, matches)["H1"] < 0.05 + margin[0]
    assert _accepted(test, high, matches)["H0"] < 0.1 + margin[1]


def _accepted(test: Sprt, probabilities: np.ndarray, matches: int) -> dict[str, float]:
    rng, lower_upper = np.random.default_rng(3), test.bounds
    counts, shares, pairs = np.zeros((matches, 5)), {"H0": 0.0, "H1": 0.0}, 0
    while len(counts):
        counts += rng.multinomial(2, probabilities, size=len(counts))
        pairs += 2 * len(counts)
        llr = test.llr(counts)
        shares["H0"] += np.sum(llr <= lower_upper[0]) / matches
        shares["H1"] += np.sum(llr >= lower_upper[1]) / matches
        counts = counts[(llr > lower_upper[0]) & (llr < lower_upper[1])]
    return shares | {"pairs": pairs / matches}


def test_the_likelihood_ratio_of_two_scores_is_that_of_two_binomials() -> None:
    # With pairs of 0 or 1 alone, the hypotheses fix everything: LLR = W ln(s1/s0) + L ln((1-s1)/(1-s0)).
    test = Sprt(0, 100, model="logistic")
    s0, s1 = expected_score(0), expected_score(100)
    expected = 70 * math.log(s1 / s0) + 30 * math.log((1 - s1) / (1 - s0))
    assert float(test.llr([30, 0, 0, 0, 70])) == pytest.approx(expected, abs=0.02)  # counts of zero are 1e-3


@given(COUNTS)
def test_swapped_players_and_hypotheses_negate_the_ratio(counts: tuple[int, ...]) -> None:
    for model in ("normalized", "logistic"):
        ours = Sprt(-10, 30, model=model).llr(counts)
        theirs = Sprt(-30, 10, model=model).llr(counts[::-1])
        assert float(ours) == pytest.approx(-float(theirs), abs=1e-3)


@pytest.mark.parametrize(
    "wrong", [{"elo0": 5, "elo1": 5}, {"elo0": 0, "elo1": 5, "alpha": 0}, {"elo0": 0, "elo1": 250}]
)
def test_sprt_refuses_nonsense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Sprt(**wrong)


def _results(rng: np.random.Generator, true: dict[str, float], games: int) -> list[tuple[str, str, float]]:
    return [
        (a, b, float(result))
        for a, own in true.items()
        for b, other in true.items()
        if a < b
        for score in [expected_score(own - other)]
        for drawn in [0.3 * 2 * min(score, 1 - score)]
        for result in rng.choice(
            [1.0, 0.5, 0.0], size=games, p=[score - drawn / 2, drawn, 1 - score - drawn / 2]
        )
    ]


def _by_name(ratings: tuple[Rating, ...]) -> dict[str, Rating]:
    return {rating.name: rating for rating in ratings}


def test_joint_ratings_cover_known_strength() -> None:
    rng, true = np.random.default_rng(4), {"a": 0.0, "b": 120.0, "c": 250.0, "d": 500.0}
    inside = []
    for seed in range(3 * REPEATS // 2):
        rated = _by_name(fit(_results(rng, true, 40), anchors={"a": 0.0}, simulations=300, seed=seed).players)
        inside += [rated[name].elo.low < true[name] < rated[name].elo.high for name in "bcd"]
    assert np.mean(inside) > 0.92


def test_ratings_at_the_end_of_a_ladder_cover_known_strength() -> None:
    rng, true = np.random.default_rng(6), {name: 240.0 * i for i, name in enumerate("abcdefghi")}
    too_high, too_low = [], []
    for seed in range(REPEATS):
        neighbours = [game for game in _results(rng, true, 40) if ord(game[1]) - ord(game[0]) <= 3]
        top = _by_name(fit(neighbours, anchors={"a": 0.0}, simulations=200, seed=seed).players)["i"].elo
        too_high.append(true["i"] < top.low)
        too_low.append(true["i"] > top.high)
    assert max(np.mean(too_high), np.mean(too_low)) < 0.025 + 3 * math.sqrt(0.025 * 0.975 / REPEATS)


def test_two_players_are_fitted_to_the_closed_form() -> None:
    ratings = fit([("a", "b", 1.0)] * 15 + [("b", "a", 1.0)] * 3 + [("a", "b", 0.5)] * 2, anchors={"b": 1500})
    rated = _by_name(ratings.players)
    assert rated["a"].elo.value == pytest.approx(1500 + 400 * math.log10(0.8 / 0.2))
    assert rated["b"].elo == Elo(1500.0, 1500.0, 1500.0)
    assert rated["b"].anchor
    assert ratings.superiority["a"]["b"] > 0.99
    assert [rating.name for rating in ratings.players] == ["a", "b"]


def test_a_player_between_two_anchors_is_measured_by_both() -> None:
    even = [("m", "low", 1.0), ("m", "low", 0.0), ("m", "high", 1.0), ("m", "high", 0.0)] * 25
    assert _by_name(fit(even, anchors={"low": 0.0, "high": 200.0}).players)["m"].elo.value == pytest.approx(
        100
    )


def test_sweeps_get_bounds_and_leave_the_others_alone() -> None:
    even = [("a", "b", 1.0), ("a", "b", 0.0)] * 20
    swept = even + [("top", "a", 1.0)] * 20 + [("b", "bottom", 1.0)] * 20 + [("x", "y", 1.0)]
    rated = _by_name(fit(swept, anchors={"a": 0.0}).players)
    assert rated["b"].elo == _by_name(fit(even, anchors={"a": 0.0}).players)["b"].elo
    # Twenty wins in a row are 5% likely at E = 0.05^(1/20).
    bound = -400 * math.log10(1 / 0.05 ** (1 / 20) - 1)
    assert rated["top"].elo == Elo(None, pytest.approx(bound, abs=0.1), None)
    assert rated["bottom"].elo == Elo(None, None, pytest.approx(-bound, abs=0.1))
    assert rated["x"].elo == rated["y"].elo == Elo(None, None, None)
    assert [rating.name for rating in fit(swept, anchors={"a": 0.0}).players][:1] == ["top"]
