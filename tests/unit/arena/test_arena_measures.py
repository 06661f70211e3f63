"""Metrics of positions against values worked out by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from arena.measures import READABLE, both_legal, move_metrics, parts_of, pass_at
from arena.pieces import RANDOM, piece_distance, piece_table
from arena.sections.influence import Influence, Influences, Part, next_text
from arena.sections.positions import PositionQuestions, mirror
from arena.sections.reasoning import reasoning_section
from rookery.influence import ChoiceDistribution, expected_regret
from rookery.trace import Outcome


@pytest.fixture
def rows(judged, answering):
    """Answers of one player from a row for each position: a regret is a legal move, a word its outcome."""
    return lambda table: answering(
        [
            [
                judged(Outcome(cell)) if isinstance(cell, str) else judged(Outcome.LEGAL, regret=cell)
                for cell in row
            ]
            for row in table
        ]
    )


def means_of(side, samples: int) -> dict[str, float | None]:
    return {metric.name: measure(side).mean for metric, measure in move_metrics(samples).items()}


def test_metrics_by_hand(rows) -> None:
    means = means_of(rows([[0, 0.2, "illegal"], ["illegal", "no_box", "illegal"], [0.3, 0.4, 0]]), 2)
    assert means["legal_rate"] == pytest.approx(3 / 6)
    assert means["legal_rate_greedy"] == pytest.approx(2 / 3)
    assert means["action_accuracy_greedy"] == pytest.approx(1 / 3)
    assert means["action_accuracy"] == pytest.approx(1 / 6)
    assert means["regret_legal"] == pytest.approx(0.6 / 3)
    assert means["regret_legal_greedy"] == pytest.approx(0.3 / 2)
    assert means["reward"] == pytest.approx((-0.6 - 3.6) / 6)
    assert means["box_rate"] == pytest.approx(5 / 6)
    assert means["legal_pass@2"] == pytest.approx(2 / 3)
    assert means["best_pass@2"] == pytest.approx(1 / 3)


def test_without_samples_only_the_greedy_answer_is_measured(rows) -> None:
    means = means_of(rows([[0], [0.5]]), 0)
    assert "legal_rate" not in means
    assert means["action_accuracy_greedy"] == 0.5


@pytest.mark.parametrize("of", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_all_draws_of_k_answers(of: int) -> None:
    for right, k in itertools.product(range(of + 1), range(1, of + 1)):
        draws = list(itertools.combinations([True] * right + [False] * (of - right), k))
        assert pass_at(k, of=of, right=right) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_newly_legal_hard_positions_raise_regret_legal_but_not_regret_both_legal(rows) -> None:
    before = rows([[0, 0.1], ["illegal", "illegal"]])
    after = rows([[0, 0.05], [0, 0.6]])
    assert means_of(after, 1)["regret_legal"] - means_of(before, 1)["regret_legal"] == pytest.approx(0.225)
    paired = both_legal({"before": before, "after": after})
    assert paired["after"].mean - paired["before"].mean == pytest.approx(-0.05)


def test_kendall_s_tau_is_over_legal_candidates_in_the_order_of_the_text(judged, answering) -> None:
    text = "<think>e2e4 d2d4 e2e4 a1a5 g1f3</think>\\boxed{e2e4}"
    agrees = judged(Outcome.LEGAL, text=text, wins={"e2e4": 0.6, "d2d4": 0.5, "g1f3": 0.4})
    differs = judged(Outcome.LEGAL, text=text, wins={"e2e4": 0.4, "d2d4": 0.5, "g1f3": 0.6})
    silent = judged(Outcome.LEGAL)
    means = means_of(answering([[agrees], [agrees], [differs], [silent]]), 0)
    assert means["kendall_tau"] == pytest.approx(1 / 3)


def test_parts_cover_the_positions_once(rows) -> None:
    parts = {part: sum(mask) for part, mask in parts_of(rows([[0]] * 4)).items()}
    assert parts == {"opening": 3, "endgame": 1, "white to move": 2, "black to move": 2}


def test_moves_by_piece_and_their_distances_by_hand(judged, answering) -> None:
    pawn, knight = (judged(Outcome.LEGAL, uci=uci) for uci in ("d2d4", "g1f3"))
    mover, best = answering([[pawn, pawn, knight]] * 2), answering([[knight]] * 2)
    table = piece_table({"a": mover}, best, seed=0)
    cells = {row.metric.name: {name: c.estimate.mean for name, c in row.cells.items()} for row in table.rows}
    assert (cells["pawn"]["a"], cells["knight"]["a"]) == (0.5, 0.5)
    # 16 of 20 first moves are a pawn's; after 1. e4 e5 it is 14 of 29, and 5 are a knight's.
    assert cells["pawn"][RANDOM] == pytest.approx((16 / 20 + 14 / 29) / 2)
    assert cells["distance_to_best"]["a"] == 0.5
    assert cells["distance_to_best_greedy"] == {"a": 1.0}
    assert piece_distance(mover, best, seed=0).mean == 0.5
    assert cells["distance_to_random"][RANDOM] == 0.0


def test_reasoning_by_hand(judged, answering) -> None:
    named = judged(Outcome.LEGAL, text="<think>d2d4 e2e4 d2d4</think>\\boxed{e2e4}")
    copied = judged(Outcome.LEGAL, text="<think>e2e4 e2e4</think>\\boxed{e2e4}")
    other = judged(Outcome.LEGAL, text="<think>a2a3</think>\\boxed{e2e4}")
    section = reasoning_section(
        {"a": answering([[named], [copied], [other], [judged(Outcome.NO_BOX, text="")]])},
        players=["a"],
        seed=0,
    )
    means = {row.metric.name: row.cells["a"].estimate.mean for row in section.tables[0].rows}
    assert means["with_reasoning"] == 0.75
    assert means["candidates"] == 6 / 4
    assert means["distinct_candidates"] == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert means["move_among_candidates"] == pytest.approx(2 / 3)
    assert means["move_is_first"] == pytest.approx(1 / 3)
    assert "calls" not in means
    called = answering([[replace(named, calls=2)], [replace(copied, calls=1)]])
    table = reasoning_section({"a": called}, players=["a"], seed=0).tables[0]
    assert {row.metric.name: row.cells["a"].estimate.mean for row in table.rows}["calls"] == 1.5


def test_the_claims_of_the_reasoning_are_checked_on_the_board_that_was_shown(judged, answering) -> None:
    true = judged(Outcome.LEGAL, text="<think>Material is level. Nice.</think>\\boxed{e2e4}")
    mixed = judged(
        Outcome.ILLEGAL, text="<think>White is a rook up. The pawn on e2 is passed.</think>\\boxed{a1a5}"
    )
    # Black is to move: on the mirrored board, which was shown, the pawn on f3 is White's.
    shown = judged(Outcome.LEGAL, text="<think>The knight on c6 attacks the pawn on e5.</think>\\boxed{e2e4}")
    silent = judged(Outcome.LEGAL)
    section = reasoning_section({"a": answering([[true, mixed], [silent], [shown]])}, players=["a"], seed=0)
    means = {row.metric.name: row.cells["a"].estimate.mean for row in section.tables[0].rows}
    assert means["sentences_read"] == pytest.approx(4 / 5)
    assert means["claims"] == pytest.approx(4 / 3)
    assert means["claims_true"] == pytest.approx(1 / 4)


def test_what_the_reasoning_saves_by_hand(judged, answering) -> None:
    def reasoned(regret: float, wins: dict[str, float], outcome: Outcome = Outcome.LEGAL):
        answer = judged(outcome, regret=regret, text="<think>d2d4 e2e4</think>\\boxed{e2e4}", wins=wins)
        return [replace(answer, verdict=replace(answer.verdict, win_before=0.6))]

    wins = {"d2d4": 0.3, "e2e4": 0.5}
    sides = [reasoned(0.1, wins), reasoned(0.2, wins), reasoned(0.1, {"e2e4": 0.5}), reasoned(0.1, wins)]
    without = [[judged(Outcome.LEGAL, regret=0.4)]] * 3 + [[judged(Outcome.ILLEGAL)]]
    section = reasoning_section(
        {"a": answering(sides)}, players=["a"], seed=0, without={"a": answering(without)}
    )
    means = {row.metric.name: row.cells["a"].estimate.mean for row in section.tables[1].rows}
    # The first candidate of the third is not legal, nor is the fourth move without reasoning.
    assert means == pytest.approx(
        {
            "regret_boxed": 0.15, "regret_first": 0.3, "regret_without": 0.4,
            "gain_over_first": 0.15, "gain_over_none": 0.25,
        }
    )  # fmt: skip


def test_stated_evaluations_against_the_engine_by_hand(judged, answering) -> None:
    """The error is in win probability, of moves and of the position; the box must be the best by the text."""

    def stating(thought: str, outcome: Outcome = Outcome.LEGAL):
        text = f"<think>{thought}</think>\\boxed{{e2e4}}"
        answer = judged(outcome, text=text, wins={"e2e4": 0.5, "d2d4": 0.6})
        return [replace(answer, verdict=replace(answer.verdict, win_before=0.65))]

    sides = [
        stating("e2e4 e7e5 60%\nd2d4 d7d5 55%"),
        stating("d4: 70%. White has a win chance of 60%."),  # one move: nothing to be consistent with
        stating("a3 +0.00, d4 +1.00"),  # the engine was not asked about a3
        stating("e2e4 is a fine move.", Outcome.LEGAL),
    ]
    section = reasoning_section({"a": answering(sides)}, players=["a"], seed=0)
    table = next(table for table in section.tables if table.name == "stated")
    means = {row.metric.name: row.cells["a"].estimate.mean for row in table.rows}
    pawn = 1 / (1 + np.exp(-0.368208))
    errors = [0.1, 0.05, 0.1, 0.05, abs(pawn - 0.6)]
    assert means == pytest.approx({"stated": 6 / 4, "stated_error": np.mean(errors), "consistent": 1 / 2})


def test_influence_by_hand() -> None:
    """Expected regrets are a softmax over the judged moves, here by numpy; parts are of three kinds."""
    logprobs, regrets = np.log([0.3, 0.1, 0.05]), np.array([0.0, 0.4, 0.1])
    weights = np.exp(logprobs) / np.exp(logprobs).sum()
    assert expected_regret(list(logprobs), list(regrets)) == pytest.approx(weights @ regrets)

    def choice(regret: float, logprob: float) -> ChoiceDistribution:
        return ChoiceDistribution((logprob, -1.0), regret)

    parts = (
        Part((0, 9), True, choice(0.10, -2.0)),
        Part((10, 19), False, choice(0.02, -0.5)),
        Part((20, 24), None, choice(0.055, -1.0)),
    )
    one = Influences("p", 0, choice(0.05, -1.0), choice(0.20, -3.0), choice(0.15, -1.5), parts)
    section = Influence([], samples=0, seed=0).section({"a": [one, None], "random": []}, players=["a"])
    means = {row.metric.name: row.cells["a"].estimate.mean for row in section.tables[0].rows}
    assert means == pytest.approx(
        {
            "regret_whole": 0.05, "regret_placebo": 0.15, "regret_none": 0.2, "parts": 3,
            "gain_over_none": 0.15, "gain_over_placebo": 0.1,
            "logprob_over_none": 2, "logprob_over_placebo": 0.5,
            "matter": 2 / 3, "help": 1 / 3, "true_and_matter": 1 / 2,
        }
    )  # fmt: skip
    (told,) = section.facts["answers"]["a"]
    assert [round(part["regret"], 3) for part in told["parts"]] == [0.05, -0.03, 0.005]


def test_the_placebo_is_the_next_text_that_differs() -> None:
    assert [next_text(["a", "", "a", "b"], place) for place in range(4)] == ["b", "a", "b", "a"]
    assert next_text(["a"], 0) == ""


def test_consistency_compares_the_move_on_the_mirrored_board(judged, positions, answering) -> None:
    [white, *_] = answering([[judged(Outcome.LEGAL, uci="e2e4")]])
    [same, *_] = answering([[judged(Outcome.LEGAL, uci="e7e5")]])
    mirrored = mirror(positions[0])
    asked = {"move": [white] * 2, "mirrored": [type(same)(mirrored, mirrored.fen, same.greedy, ()), white]}
    best = answering([[judged(Outcome.LEGAL, uci="g1f3")]]) * 2
    source = PositionQuestions(positions[:1], 0, styles=False, seed=0)
    section = source.section({"a": asked, "engine's best": {"move": best, "mirrored": best}}, players=["a"])
    rows = {row.metric.name: row.cells for row in section.tables[0].rows}
    assert rows["mirror_consistency"]["a"].estimate.mean == 1.0


def test_every_outcome_is_either_readable_or_not() -> None:
    assert {o.value for o in Outcome} - {o.value for o in READABLE} == {
        "no_box",
        "truncated",
        "empty_box",
        "too_long",
        "unparsable",
    }
