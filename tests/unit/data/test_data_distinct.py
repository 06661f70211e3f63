import random

import chess
from hypothesis import given
from hypothesis import strategies as st

from chess_datasets.positions.distinct import PositionKeys, canonical_fen, position_key
from rookery.prompt import mover_board


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
