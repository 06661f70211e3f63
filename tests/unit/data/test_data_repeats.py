"""Which positions are repeated, and with which probability."""

import random
from collections import Counter

import pytest

from rookery.trace import Draw
from services.data.positions.recipe import FORGOTTEN, Repeats


def test_choices_come_with_the_recorded_probabilities() -> None:
    repeats, weights = Repeats(0.4, half_life=100), {3: 0.1, 5: 0.3}
    draws = Counter(repeats.draw(weights, fresh=9, rng=random.Random(seed)) for seed in range(20_000))
    assert {draw.number for draw in draws} == {3, 5, 9}
    assert sum(draw.probability for draw in draws) == pytest.approx(1.0)
    for draw, count in draws.items():
        assert count / 20_000 == pytest.approx(draw.probability, abs=0.02)
        assert draw.repeated == (draw.number != 9)


def test_without_positions_to_repeat_all_are_new() -> None:
    assert Repeats(0.9, half_life=1).draw({}, fresh=4, rng=random.Random(0)) == Draw(4, 1.0, repeated=False)


def test_weights_halve_and_end() -> None:
    repeats = Repeats(0.5, half_life=10)
    deviations = dict.fromkeys((0, 20, 80, 90, 100), 0.2)
    weights = repeats.weights(deviations, fresh=100)
    assert weights == pytest.approx({80: 0.05, 90: 0.1, 100: 0.2})
    assert min(weights) > 100 - 10 * FORGOTTEN
