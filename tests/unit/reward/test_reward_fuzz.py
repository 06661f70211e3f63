"""A few thousand of the texts that `tests.babble` makes; the integration tests read fifty times as many."""

import re
import unicodedata
from collections import Counter

import chess

from rookery.answers import extract
from rookery.errors import InvalidInput
from rookery.notation import read_move
from rookery.trace import Outcome
from services.reward.position import read_position
from tests.babble import completions, fens


def test_every_completion_has_an_outcome_and_every_move_is_legal() -> None:
    outcomes = Counter()
    for number, (fen, completion) in enumerate(completions(seed=1, count=2000)):
        board = read_position(fen).board
        answer = extract(completion, truncated=number % 7 == 0)
        assert (answer.missing is None) == bool(answer.text), completion
        if answer.missing:
            outcomes[answer.missing] += 1
            continue
        reading = read_move(answer.text, board)
        outcomes[reading.outcome] += 1
        assert (reading.outcome is Outcome.LEGAL) == (reading.move is not None), completion
        if reading.move:
            assert board.is_legal(reading.move), completion
            letters = re.sub(r"[^a-h1-8]", "", unicodedata.normalize("NFKC", answer.text))
            said = chess.square_name(reading.move.to_square) in letters
            assert said or board.is_castling(reading.move), completion
    assert set(outcomes) == set(Outcome), outcomes
    assert outcomes["legal"] > 100


def test_every_fen_is_a_position_or_refused_by_name() -> None:
    accepted = 0
    for fen in fens(seed=2, count=1000):
        try:
            position = read_position(fen)
        except InvalidInput as error:
            assert repr(fen[:60])[:-1] in str(error)
            continue
        accepted += 1
        assert chess.Board(position.key, chess960=position.chess960).is_valid()
    assert accepted > 100
