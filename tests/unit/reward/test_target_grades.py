"""Grades by a data set's own answer: continuous, 1 only for the target, little for what takes no skill."""

import json
import math
import random
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.rookworld import PolicyAnswer, StateAnswer, parse_policy_line, policy_answer, state_answer
from rookery.rookworld_env import step
from rookery.trace import Outcome
from services.reward.rookworld_grades import FORMAT, INVALID, Grade, grade_state
from services.reward.rookworld_task import judged_by_target
from services.reward.target_grades import EVALUATION_SPAN, grade_target

K = 0.00368208
BOARD = chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3")
MOVES = ("f1b5", "f1c4", "d2d4", "b1c3", "c2c3")
EVALS = (0.4, 0.35, 0.3, 0.2, 0.05)
P_TARGET = policy_answer(PolicyAnswer(MOVES, EVALS, "f1b5"))
STATE = step(BOARD.fen(), "f1b5").answer
A_TARGET = state_answer(STATE)


def grade(response: str, *, task: str = "P", target: str = "", board: chess.Board = BOARD) -> Grade:
    return grade_target(task, board, response, target or {"P": P_TARGET, "A": A_TARGET}[task], k=K)


def policy(moves: tuple[str, ...] = MOVES, evals: tuple[float, ...] = EVALS, best: str = "f1b5") -> float:
    return grade(policy_answer(PolicyAnswer(moves, evals, best), layout="compact")).reward


def test_the_target_is_perfect_in_any_order_and_layout() -> None:
    assert grade(P_TARGET).reward == pytest.approx(1.0)
    assert policy(MOVES[::-1], EVALS[::-1]) == pytest.approx(1.0)
    assert grade("M: f1b5,f1c4,d2d4,b1c3,c2c3 E: 0.4,0.35,0.3,0.2,0.05 B: f1b5").reward == pytest.approx(1.0)
    perfect = grade(A_TARGET, task="A")
    assert (perfect.reward, perfect.outcome) == (1.0, Outcome.LEGAL)
    assert set(perfect.components.values()) == {1.0}


def test_a_wrong_best_move_costs_a_third_of_the_quality() -> None:
    assert policy(best="d2d4") == pytest.approx(FORMAT + 0.8 * 2 / 3)


def test_each_move_that_is_missing_or_repeated_costs_its_place() -> None:
    for moves in (("f1b5", "f1c4", "d2d4", "b1c3", "a2a3"), ("f1b5", "f1c4", "d2d4", "b1c3", "f1b5")):
        assert policy(moves) == pytest.approx(FORMAT + 0.8 * (1 + 0.8 + 0.8) / 3)
    assert policy(MOVES[:1], EVALS[:1]) == pytest.approx(FORMAT + 0.8 * (1 + 0.2 + 0.2) / 3)


def test_evaluations_fall_in_a_line_to_nothing() -> None:
    def component(shift: float) -> float:
        text = policy_answer(PolicyAnswer(MOVES, tuple(e + shift for e in EVALS), "f1b5"), layout="compact")
        return grade(text).components["evaluations"]

    values = [component(pawns) for pawns in (0.0, 0.5, 1.0, 1.5)]
    falls = [first - second for first, second in pairwise(values)]
    assert falls == pytest.approx([0.046 / EVALUATION_SPAN] * 3, abs=0.02)
    assert component(4.0) == component(-4.0) == 0.0


def test_an_illegal_best_move_earns_the_format_alone() -> None:
    illegal = grade(policy_answer(PolicyAnswer(MOVES, EVALS, "e2e4")))
    assert (illegal.reward, illegal.outcome) == (FORMAT, Outcome.ILLEGAL)


@pytest.mark.parametrize(("task", "text"), [("P", "M: e2e4"), ("P", A_TARGET), ("A", P_TARGET), ("A", "")])
def test_a_wrong_format_is_invalid(task: str, text: str) -> None:
    found = grade(text, task=task)
    assert (found.reward, found.outcome, dict(found.components)) == (
        INVALID, Outcome.UNPARSABLE, {"format": 0.0},
    )  # fmt: skip


def test_each_wrong_place_of_a_fen_divides_its_similarity_by_e() -> None:
    fields = STATE.next_fen.split()
    for wrong, places in ((" w ", 1), (" w - ", 2)):
        changed = STATE.next_fen.replace(f" {fields[1]} {'KQkq ' if places == 2 else ''}", wrong)
        found = grade(state_answer(StateAnswer(changed, 0.001, False, False)), task="A")
        assert found.components["fen"] == pytest.approx(math.exp(-places))
        assert found.reward == pytest.approx(FORMAT + 0.8 * math.exp(-places))


@given(st.floats(-1, 1), st.booleans(), st.booleans(), st.sampled_from(["f1b5", "g1f3", "f3g5", "d2d3"]))
def test_with_the_right_fen_the_steps_are_those_of_the_rules(
    reward: float, terminated: bool, truncated: bool, move: str
) -> None:
    """Legal or not: where engine and rules grade in steps, the target's grade is the same step."""
    truth = step(BOARD.fen(), move).answer
    text = state_answer(StateAnswer(truth.next_fen, round(reward, 3), terminated, truncated))
    graded = grade(text, task="A", target=state_answer(truth))
    assert graded.reward == pytest.approx(grade_state(BOARD.fen(), move, text).reward)


@pytest.mark.parametrize(
    ("task", "target"),
    [("P", "M: e2e4"), ("P", A_TARGET), ("P", P_TARGET.replace("B: f1b5", "B: e2e5")), ("A", P_TARGET)],
)
def test_a_target_that_is_no_answer_is_refused(task: str, target: str) -> None:
    with pytest.raises(InvalidInput, match=f"is not an answer to task '{task}'"):
        grade(A_TARGET, task=task, target=target)


def test_a_target_judges_unless_the_scheme_says_otherwise() -> None:
    assert judged_by_target("P", "", P_TARGET)
    assert judged_by_target("P", "target", P_TARGET)
    assert not judged_by_target("P", "graded", P_TARGET)
    assert not judged_by_target("A", "", "")
    with pytest.raises(InvalidInput, match="scheme 'target' of task 'A' needs a target"):
        judged_by_target("A", "target", "")
    with pytest.raises(InvalidInput, match="scheme 'delta' judges moves: task 'P' takes only 'graded' and"):
        judged_by_target("P", "delta", P_TARGET)


@pytest.mark.shared_data
def test_what_takes_no_skill_earns_little_on_published_questions(shared_data: Path) -> None:
    folder = shared_data / "rookworld"
    rows = json.loads((folder / "trl" / "opening_dataset_train.json").read_text())[:300]
    copied = []
    for row in rows:
        fen = row["prompt"].removeprefix("A: ").split("+")[0]
        truth = step(fen, row["move"]).answer
        text = state_answer(StateAnswer(fen, 0.001, False, False))
        copied.append(grade(text, task="A", target=state_answer(truth), board=chess.Board(fen)).reward)
    assert fmean(copied) < 0.25
    lines = map(parse_policy_line, (folder / "rook" / "rook_val_dev_250.txt").read_text().splitlines())
    rng, at_random = random.Random(0), []
    for line in lines:
        board = chess.Board(line.fen)
        legal = [move.uci() for move in board.legal_moves]
        moves = tuple(rng.sample(legal, min(5, len(legal))))
        text = policy_answer(PolicyAnswer(moves, (0.0,) * len(moves), moves[0]))
        at_random.append(grade(text, target=policy_answer(line.answer), board=board).reward)
    assert fmean(at_random) < 0.35
