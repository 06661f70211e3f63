"""The fast reader of placements agrees with python-chess on everything, errors included."""

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.reward.position import _Board

FIELDS = ("pawns", "knights", "bishops", "rooks", "queens", "kings", "occupied", "occupied_co", "promoted")


def read(kind: type[chess.Board], placement: str) -> object:
    try:
        board = kind(f"{placement} w - - 0 1")
    except ValueError as error:
        return str(error)
    return [getattr(board, field) for field in FIELDS]


@st.composite
def placements(draw: st.DrawFn) -> str:
    board = chess.BaseBoard.empty()
    for square in draw(st.sets(st.sampled_from(chess.SQUARES))):
        board.set_piece_at(square, chess.Piece.from_symbol(draw(st.sampled_from("PNBRQKpnbrqk"))))
    return board.board_fen()


@given(placements())
def test_a_sound_placement_is_read_alike(placement: str) -> None:
    assert read(_Board, placement) == read(chess.Board, placement)
    assert _Board(f"{placement} w - - 0 1").board_fen() == placement


@given(placements(), st.integers(0, 80), st.sampled_from("PkQ/0123789~x "), st.booleans())
def test_a_damaged_placement_is_refused_alike(placement: str, at: int, symbol: str, keep: bool) -> None:
    damaged = placement[:at] + symbol + placement[at + (not keep) :]
    assert read(_Board, damaged) == read(chess.Board, damaged)


@pytest.mark.parametrize(
    "placement", ["8/8/8/8/8/8/8", "8/8/8/8/8/8/8/8/8", "44/8/8/8/8/8/8/8", "Q~7/8/8/8/8/8/8/8"]
)
def test_odd_placements_are_read_alike(placement: str) -> None:
    assert read(_Board, placement) == read(chess.Board, placement)
