"""Only positions an engine may be asked about get past; both colours become one question."""

import json
from pathlib import Path

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from services.reward.position import read_position


@pytest.mark.parametrize(
    ("fen", "why"),
    [
        ("", "not a FEN"),
        ("x", "not a FEN"),
        ("8/8/8/8/8/8/8/8 w - - 0 1", "no white king"),
        ("4k3/8/8/8/8/8/8/8 w - - 0 1", "no white king"),
        ("4k2R/8/8/8/8/8/8/4K3 w - - 0 1", "opposite check"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBN1 w KQkq - 0 1", "bad castling rights"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq e6 0 1", "invalid ep square"),
        ("P3k3/8/8/8/8/8/8/4K3 w - - 0 1", "pawns on backrank"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1 " + "x" * 200, "characters long"),
        ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "stalemate"),
        ("R5k1/5ppp/8/8/8/8/8/4K3 b - - 0 1", "checkmate"),
    ],
)
def test_refuses_and_quotes(fen: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        read_position(fen)
    assert repr(fen[:100])[:-1] in str(caught.value)


def test_a_position_and_its_mirror_image_are_one_question() -> None:
    board = chess.Board("r3k2r/pp2bppp/8/3pP3/8/2N5/PPP2PPP/R3K2R w KQkq d6 0 11")
    here, there = read_position(board.fen()), read_position(board.mirror().fen())
    assert here.key == there.key
    for move in board.legal_moves:
        twin = there.from_engine(here.to_engine(move))
        assert there.board.is_legal(twin)
        assert here.from_engine(there.to_engine(twin)) == move


def test_the_move_number_does_not_matter_but_the_clock_does() -> None:
    keys = {
        read_position(f"4k3/8/8/8/8/8/4P3/4K3 w - - {end}").key for end in ("0 1", "0 90", "50 90", "99 90")
    }
    assert len(keys) == 3
    assert read_position("4k3/8/8/8/8/8/4P3/4K3 w - - 999999999 1").key.endswith(" 100 1")


@pytest.mark.shared_data
def test_agrees_with_labelled_fens(shared_data: Path) -> None:
    for line in (shared_data / "fen_fixtures" / "fen_dev.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["valid"] and any(chess.Board(row["fen"]).legal_moves):
            assert read_position(row["fen"]).board.fen() == row["canonical"], row
        else:
            with pytest.raises(InvalidInput):
                read_position(row["fen"])


@settings(max_examples=500)
@given(st.data())
def test_mutated_fens_are_read_or_refused(data: st.DataObject) -> None:
    fen = list(data.draw(st.sampled_from([chess.STARTING_FEN, "8/P1k5/8/8/3pP3/8/8/R3K2R b KQ e3 0 40"])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(fen) - 1))
        fen[place] = data.draw(st.sampled_from([*"KQRBNPkqrbnp12345678/ wb-0", "", "\x00", "\u0663"]))
    try:
        position = read_position("".join(fen))
    except InvalidInput:
        return
    assert chess.Board(position.key).turn == chess.WHITE
    assert chess.Board(position.key).is_valid()
