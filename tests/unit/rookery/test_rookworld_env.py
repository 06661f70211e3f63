"""What comes of a move by the rules of chess, and of one that breaks them."""

import json
from pathlib import Path

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery import rookworld_env
from rookery.errors import InvalidInput
from rookery.rookworld import StateAnswer

QUIET = (0.001, False, False)
WON = (1.0, True, False)
DRAWN = (0.5, True, False)


@pytest.mark.parametrize(
    ("fen", "move", "next_fen", "result"),
    [
        pytest.param(
            chess.STARTING_FEN,
            "e2e4",
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1",
            QUIET,
            id="no en-passant square where nobody can take",
        ),
        pytest.param(
            "4k3/8/8/8/3p4/8/4P3/4K3 w - - 7 9",
            "e2e4",
            "4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 9",
            QUIET,
            id="an en-passant square where somebody can",
        ),
        pytest.param(
            "4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 9", "d4e3", "4k3/8/8/8/8/4p3/8/4K3 w - - 0 10", QUIET, id="taken"
        ),
        pytest.param(
            "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",
            "e1c1",
            "r3k2r/8/8/8/8/8/8/2KR3R b kq - 1 1",
            QUIET,
            id="castles",
        ),
        pytest.param(
            "7k/4P3/8/8/8/8/8/K7 w - - 5 9", "e7e8n", "4N2k/8/8/8/8/8/8/K7 b - - 0 9", DRAWN, id="bare"
        ),
        pytest.param(
            "7k/4P3/6K1/8/8/8/8/8 w - - 5 9", "e7e8q", "4Q2k/8/6K1/8/8/8/8/8 b - - 0 9", WON, id="mates"
        ),
        pytest.param(
            "k7/8/K7/8/8/8/8/1Q6 w - - 0 1", "b1b6", "k7/8/KQ6/8/8/8/8/8 b - - 1 1", DRAWN, id="stalemates"
        ),
        pytest.param(
            "7k/8/8/8/8/8/R7/K7 w - - 149 100",
            "a2b2",
            "7k/8/8/8/8/8/1R6/K7 b - - 150 100",
            DRAWN,
            id="75 moves",
        ),
        pytest.param(
            "7k/8/8/8/8/8/R7/K7 w - - 99 100",
            "a2b2",
            "7k/8/8/8/8/8/1R6/K7 b - - 100 100",
            QUIET,
            id="a claim ends nothing",
        ),
    ],
)
def test_legal_moves(fen: str, move: str, next_fen: str, result: tuple[float, bool, bool]) -> None:
    answer = rookworld_env.step(fen, move).answer
    assert answer.next_fen == next_fen
    assert (answer.reward, answer.terminated, answer.truncated) == result


@pytest.mark.parametrize(
    ("fen", "move"),
    [
        (chess.STARTING_FEN, "e4e5"),  # nothing stands there: all that the published lines call illegal
        (chess.STARTING_FEN, "e7e5"),
        (chess.STARTING_FEN, "f1b5"),
        (chess.STARTING_FEN, "e2e5"),
        (chess.STARTING_FEN, "e2e2"),
        ("4k3/8/8/8/8/8/4r3/K7 w - - 0 1", "a1b2"),
        ("4k3/8/8/8/8/8/4r3/4K3 w - - 0 1", "e1g1"),
        ("4k3/4P3/8/8/8/8/8/K7 w - - 0 1", "e7e8q"),
        ("3rk3/4P3/8/8/8/8/8/K7 w - - 0 1", "e7d8"),  # a promotion without its piece
    ],
)
def test_illegal_moves_leave_the_board_and_truncate(fen: str, move: str) -> None:
    assert rookworld_env.step(fen, move).answer == StateAnswer(fen, -1.0, terminated=False, truncated=True)


def test_after_the_end_every_move_is_illegal_and_the_game_still_over() -> None:
    line = rookworld_env.step("R5k1/5ppp/8/8/8/8/8/6K1 b - - 1 1", "g8h8")
    assert line.answer == StateAnswer(line.fen, -1.0, terminated=True, truncated=True)


def test_history_keeps_ten_moves_the_last_one_included() -> None:
    recent = tuple(f"a{n % 8 + 1}b1" for n in range(10))
    assert rookworld_env.step(chess.STARTING_FEN, "e2e4", recent=recent).recent == (*recent[1:], "e2e4")
    assert rookworld_env.step(chess.STARTING_FEN, "e2e4").recent == ("e2e4",)


@pytest.mark.parametrize(
    ("fen", "move"),
    [("", "e2e4"), ("8/8 w", "e2e4"), (chess.STARTING_FEN, "Nf3"), (chess.STARTING_FEN, "0000")],
)
def test_a_question_that_is_none_is_refused(fen: str, move: str) -> None:
    with pytest.raises(InvalidInput):
        rookworld_env.step(fen, move)


@given(st.data())
def test_agrees_with_a_replayed_game(data: st.DataObject) -> None:
    board = chess.Board()
    for _ in range(data.draw(st.integers(1, 30))):
        move = data.draw(st.sampled_from(sorted(board.legal_moves, key=chess.Move.uci)))
        answer = rookworld_env.step(board.fen(), move.uci()).answer
        board.push(move)
        assert (answer.next_fen, answer.truncated) == (board.fen(), False)
        if board.outcome():
            return


@given(
    st.sampled_from(chess.SQUARES), st.sampled_from(chess.SQUARES), st.sampled_from(["", "q", "r", "b", "n"])
)
def test_legality_is_exactly_python_chess(start: int, end: int, promotion: str) -> None:
    fen = "r3k2r/P2pPp2/8/4Pp1b/8/1q6/1P4P1/R3K2R w KQkq f6 0 20"
    move = chess.SQUARE_NAMES[start] + chess.SQUARE_NAMES[end] + promotion
    legal = {legal.uci() for legal in chess.Board(fen).legal_moves} | {
        "e1h1"
    }  # castling, as python-chess reads it
    assert rookworld_env.step(fen, move).answer.truncated == (move not in legal)


@pytest.mark.shared_data
def test_agrees_with_the_published_openings(shared_data: Path) -> None:
    for row in json.loads((shared_data / "rookworld/trl/opening_dataset_train.json").read_text()):
        fen = row["prompt"].removeprefix("A: ").split("+")[0]
        assert rookworld_env.step(fen, row["move"]).answer.next_fen == row["expected_fen"]
