import random
from pathlib import Path

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.prompt import mover_board
from services.data.positions.distinct import PositionKeys, canonical_fen, position_key, read_evaluation_files

START = chess.STARTING_FEN


def boards(seed: int, plies: int) -> chess.Board:
    board, rng = chess.Board(), random.Random(seed)
    while len(board.move_stack) < plies and not board.is_game_over():
        board.push(rng.choice(sorted(board.legal_moves, key=chess.Move.uci)))
    return board


@given(seed=st.integers(0, 1 << 32), plies=st.integers(0, 60))
def test_the_question_is_the_four_fields_of_the_movers_board(seed: int, plies: int) -> None:
    board = boards(seed, plies)
    assert canonical_fen(board.fen()) == " ".join(mover_board(board.fen()).fen().split()[:4])
    assert position_key(board.fen()) == position_key(board.mirror().fen())
    board.halfmove_clock, board.fullmove_number = 40, 90
    assert position_key(board.fen()) == position_key(boards(seed, plies).fen())


@given(st.lists(st.integers(0, (1 << 64) - 1)), st.integers(0, (1 << 64) - 1))
def test_questions_are_a_set(keys: list[int], other: int) -> None:
    questions = PositionKeys(keys)
    assert len(questions) == len(set(keys))
    assert all(key in questions for key in keys)
    assert (other in questions) == (other in keys)


AFTER_E4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq"
ENDGAME = "8/8/1n6/8/7K/8/3k4/1Q6 w - -"


@pytest.mark.parametrize(
    "text",
    [
        f"{ENDGAME} 0 1",
        f'# a comment\n\n{ENDGAME} bm Qb3; id "1";\n',
        f"{ENDGAME}; v=-385",
        f'{{"id": "x", "fen": "{ENDGAME} 3 40", "ply": 9}}\n',
        f'[Event "?"]\n[FEN "{ENDGAME} 0 1"]\n\n1. Qb3 *\n',
        f"PuzzleId,FEN,Moves,Rating\nabc,{ENDGAME} 0 1,,1500\n",
    ],
)
def test_positions_are_found_wherever_they_stand(tmp_path: Path, text: str) -> None:
    path = tmp_path / "exam"
    path.write_text(text)
    questions, [exam] = read_evaluation_files([str(path)])
    assert exam.positions == len(questions) == 1
    assert position_key(f"{ENDGAME} 0 1") in questions
    assert exam.summary["path"] == "exam"


def test_en_passant_squares_that_mean_nothing_make_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "exam.epd"
    path.write_text(f"{AFTER_E4} e3")
    assert position_key(f"{AFTER_E4} - 0 1") in read_evaluation_files([str(path)])[0]


def test_every_position_of_a_puzzle_counts(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.csv"
    path.write_text(f"PuzzleId,FEN,Moves,Rating\nabc,{START},e2e4 e7e5 g1f3,1500\nbad,{START},e2e5 e7e5,1\n")
    questions, [exam] = read_evaluation_files([str(path)])
    board = chess.Board()
    for uci in ("e2e4", "e7e5", "g1f3"):
        board.push_uci(uci)
        assert position_key(board.fen()) in questions
    assert exam.positions == 5


def test_an_exam_without_positions_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "exam.txt"
    path.write_text("9/8/8/8/8/8/8/8 w - -\n8/8/8 w - -\n")
    with pytest.raises(InvalidInput, match="holds no position"):
        read_evaluation_files([str(path)])
