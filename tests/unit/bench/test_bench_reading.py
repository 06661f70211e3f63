"""The texts of the reading benchmark are what their names say."""

import chess
import pytest

from bench.reward.reading import CHARS, PROSE, SLOWEST, written
from commentary import read
from tests.unit.commentary.boards import random_board


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_is_read_and_true(seed: int) -> None:
    fen = random_board(seed).fen()
    text = written(fen, seed)
    assert len(text) >= CHARS
    assert read(fen, text).sound


@pytest.mark.parametrize("text", [PROSE, SLOWEST])
def test_what_is_not_read_is_not(text: str) -> None:
    reading = read(chess.STARTING_FEN, text)
    assert reading.sentences
    assert reading.share_read == 0.0
