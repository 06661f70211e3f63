from dataclasses import replace

import pytest

from rookery.trace import Outcome
from services.arena.measures import ALL, READABLE, measure


@pytest.fixture
def rows(judged, answering):
    """Answers of one policy from a row for each position: a regret is a legal move, a word its outcome."""
    return lambda table: answering(
        [
            [
                judged(Outcome(cell)) if isinstance(cell, str) else judged(Outcome.LEGAL, regret=cell)
                for cell in row
            ]
            for row in table
        ]
    )


def test_metrics_by_hand(rows) -> None:
    before = rows([[0, 0.2, "illegal"], ["illegal", "no_box", "illegal"], [0, 0.4, 0]])
    after = rows([[0, 0.1, 0.1], [0, 0.9, "illegal"], [0, 0.4, "no_box"]])
    compared = measure(before, after, seed=0)[ALL].comparisons

    def means(name: str) -> tuple[float, float, float]:
        c = compared[name]
        return pytest.approx((c.before.mean, c.after.mean, c.difference.mean))

    assert means("legal_rate") == (3 / 6, 4 / 6, 1 / 6)
    assert means("legal_rate_greedy") == (2 / 3, 1.0, 1 / 3)
    assert means("box_rate") == (5 / 6, 5 / 6, 0.0)
    assert means("reward") == ((-0.6 - 3.6) / 6, (-1.5 - 2.4) / 6, (-3.9 + 4.2) / 6)
    assert means("regret_legal") == (0.6 / 3, 1.5 / 4, 1.5 / 4 - 0.2)


def test_newly_legal_hard_positions_raise_regret_legal_but_not_regret_both_legal(rows) -> None:
    before = rows([[0, 0.1], ["illegal", "illegal"]])
    after = rows([[0, 0.05], [0, 0.6]])
    compared = measure(before, after, seed=0)[ALL].comparisons
    assert compared["regret_legal"].difference.mean == pytest.approx(0.225)
    assert compared["regret_both_legal"].difference.mean == pytest.approx(-0.05)


def test_parts_cover_the_positions_once(rows) -> None:
    side = rows([[0, 0]] * 4)
    parts = measure(side, side, seed=0)
    assert {name: part.positions for name, part in parts.items()} == {
        "all": 4,
        "opening": 3,
        "endgame": 1,
        "white": 2,
        "black": 2,
    }


def test_sides_on_different_positions_are_refused(rows) -> None:
    before = rows([[0, 0]] * 2)
    after = [replace(answers, position=replace(answers.position, id="other")) for answers in before]
    with pytest.raises(ValueError, match="different positions"):
        measure(before, after, seed=0)


def test_every_outcome_is_either_readable_or_not() -> None:
    assert {o.value for o in Outcome} - {o.value for o in READABLE} == {
        "no_box",
        "truncated",
        "empty_box",
        "too_long",
        "unparsable",
    }
