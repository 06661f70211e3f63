"""Candidates in texts, and Kendall's tau against values worked out by hand."""

import itertools
import time

import chess
import pytest

from arena.measures import argsort_tau, kendall_tau
from rookery.candidates import best_stated, candidates_of, stated_evaluations
from rookery.trace import Evaluation


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("<think>e2e4 c2c4 d2d4</think>\\boxed{d2d4}", ["e2e4", "c2c4", "d2d4"]),
        ("I like Nf3 or e4; after 1...Nf6 the square e5 matters. \\boxed{Nf3}", ["g1f3", "e2e4"]),
        ("<think>e2e5?</think>\\boxed{e4}", ["e2e5"]),
        (
            "<think>2 e2e4 e7e5 53% d2d4 d7d5 52% c2c4 c7c5</think>\\boxed{e4}",
            ["e2e4", "d2d4", "c2c4", "c7c5"],
        ),
        ("The f4-pawn and a safe king.\\boxed{e4}", []),
        ("\\boxed{e4}", []),
        ("M: e2e4 d2d4 E: -0.1 0.3 B: d2d4", ["e2e4", "d2d4"]),
    ],
)
def test_moves_in_a_text(text: str, moves: list[str]) -> None:
    assert [candidate.move for candidate in candidates_of(text, chess.Board())] == moves


def test_a_line_orders_its_candidates_by_evaluation() -> None:
    line = candidates_of("M: e2e4 d2d4 E: -0.1 0.3 B: d2d4", chess.Board())
    assert max(line, key=lambda candidate: candidate.score).move == "d2d4"


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], (5 - 1) / 6),
        ([1, 2, 3], [1, 1, 2], 2 / (3 * 2) ** 0.5),  # one pair is tied: sqrt(3 * 2) instead of 3
        ([1, 1], [1, 2], None),
        ([], [], None),
    ],
)
def test_kendall_s_tau_by_hand(first: list[float], second: list[float], tau: float | None) -> None:
    assert kendall_tau(first, second) == (None if tau is None else pytest.approx(tau))


def test_tau_of_argsorts_is_that_of_the_sorting_permutations() -> None:
    for second in itertools.permutations([0.1, 0.2, 0.3, 0.4]):
        order = sorted(range(4), key=lambda i: second[i])
        assert argsort_tau([0, 1, 2, 3], second) == pytest.approx(kendall_tau([0, 1, 2, 3], order))


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Nf6? -2.1, e5 \u22120.30", {"g8f6": 210, "e7e5": 30}),
        ("e5! 12 moves later, d5 is +0.30.", {"d7d5": -30}),
        ("Best is e5!! - Then d5 is +0.20.", {"d7d5": -20}),
        ("Nf6 is solid (+0.31).", {"g8f6": -31}),  # White's view, and Black is to move
        ("After e5 Nf3 Nc6 the evaluation is -25 cp; a6 loses 3 tempi.", {"e7e5": 25}),
        ("Black wins 40% here. White has a 70% chance.", {"": 0.4}),
        ("c5 gives White winning chances of 55%.", {"c7c5": 1 - 0.55}),
        ("Half of games, 50%, are drawn. e6 is fine.", {}),  # a share of what?
        ("d5 M-3, c6: #2", {"d7d5": "M3", "c7c6": "M-2"}),
        ("e5 (+0.2.1), a6 150%, b6 (+0.10)", {"b7b6": -10}),  # the first two are no values
        ("e5 +0.20 and again e5 +0.90", {"e7e5": -20}),
        ("e5 +#-3, d5 -M-2, c5 #0, d6 -5%, e6 40-45%", {}),  # two signs, no mate, a change, a range
        ("e5 -#3, d5 M-12", {"e7e5": "M3", "d7d5": "M12"}),
        ("\n".join("+9.99 1% #3 M7" for _ in range(20_000)), {"": -999}),
    ],
)
def test_evaluations_that_a_text_states(text: str, stated: dict[str, float | str]) -> None:
    board = chess.Board("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1")
    answer = f"<think>{text}</think>\\boxed{{e5}}"
    found = stated_evaluations(answer, board)
    expected = {
        move: value
        if isinstance(value, float)
        else Evaluation(cp=value)
        if isinstance(value, int)
        else Evaluation(mate=int(value[1:]))
        for move, value in stated.items()
    }
    assert {move: each.value for move, each in found.items()} == expected
    assert all(any(map(str.isdigit, answer[each.start : each.end])) for each in found.values())


def test_a_long_text_of_moves_and_values_takes_time_in_proportion() -> None:
    def seconds(size: int) -> float:
        text = "e4 d4 Nf3 1%1% " * size + "\\boxed{e4}"
        begin = time.process_time()
        stated_evaluations(text, chess.Board())
        return time.process_time() - begin

    assert seconds(600) < 30 * max(seconds(60), 1e-3)


def test_the_best_by_what_is_stated() -> None:
    def best(text: str) -> list[str]:
        return sorted(best_stated(stated_evaluations(f"{text} \\boxed{{a3}}", chess.Board())))

    assert best("e4 50%, d4 40%") == ["e2e4"]
    assert best("e4 +0.00, d4 50%, a3 40%, I have a chance of 90%.") == ["d2d4", "e2e4"]
    assert best("e4 50%. White has a chance of 40%.") == [], "one move has nothing to be better than"


def test_castling_has_one_key_however_it_is_spelt() -> None:
    board = chess.Board("4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1")
    stated = stated_evaluations("e1h1 60%, e1g1 50%, O-O-O 40% \\boxed{O-O}", board)
    assert {move: each.value for move, each in stated.items()} == {"e1g1": 0.6, "e1c1": 0.4}
    assert best_stated(stated) == ["e1g1"]


def test_a_line_states_its_evaluations() -> None:
    board = chess.Board()
    stated = stated_evaluations("M: e2e4 d2d4 E: -0.1 0.3 B: d2d4", board)
    assert {move: each.value for move, each in stated.items()} == {
        "e2e4": Evaluation(cp=-10),
        "d2d4": Evaluation(cp=30),
    }
