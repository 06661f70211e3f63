"""FENs from outside: the fast reader agrees with python-chess, and nothing impossible gets past."""

import json
from collections import Counter

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.fen import FenReport, _Board, read_fen

FIELDS = ("pawns", "knights", "bishops", "rooks", "queens", "kings", "occupied", "occupied_co", "promoted")

PAWNS = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP"
UNUSABLE = [
    (f"{PAWNS}/1NBQKBNR w KQkq - 0 1", f"{PAWNS}/1NBQKBNR w Kkq - 0 1"),
    (f"{PAWNS}/RNBQKBN1 w KQkq - 0 1", f"{PAWNS}/RNBQKBN1 w Qkq - 0 1"),
    (f"{PAWNS}/RNBQKBNR w KQkq e6 0 1", f"{PAWNS}/RNBQKBNR w KQkq - 0 1"),
    (f"{PAWNS}/RNBQKBNR w KQkq a1 0 1", f"{PAWNS}/RNBQKBNR w KQkq - 0 1"),
    (
        "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1",  # no pawn can take
        "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1",
    ),
    (
        "8/8/8/8/k2Pp2Q/8/8/4K3 b - d3 0 1",  # the capture would be illegal
        "8/8/8/8/k2Pp2Q/8/8/4K3 b - - 0 1",
    ),
    (
        "8/8/8/1k6/3Pp3/8/8/4KQ2 b - d3 0 1",  # the last move was not the pawn's: it did not give this check
        "8/8/8/1k6/3Pp3/8/8/4KQ2 b - - 0 1",
    ),
    ("4k3/8/8/8/8/8/8/RK4r1 w KQ - 0 1", "4k3/8/8/8/8/8/8/RK4r1 w - - 0 1"),
    ("r4k1r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "r4k1r/8/8/8/8/8/8/R3K2R w KQ - 0 1"),  # kings of two arrays
    ("1r2k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "1r2k2r/8/8/8/8/8/8/R3K2R w KQk - 0 1"),  # rooks of two arrays
    ("rk5r/1p6/8/8/8/8/8/KR5R w KQkq - 0 1", "rk5r/1p6/8/8/8/8/8/KR5R w - - 0 1"),
    ("r5k1/8/8/8/8/8/8/R5K1 w KQkq - 0 1", "r5k1/8/8/8/8/8/8/R5K1 w - - 0 1"),  # both have castled
]
"""FENs as other programs write them, and what is left of them."""


@pytest.mark.parametrize(("given", "used"), UNUSABLE)
def test_what_nobody_can_use_is_dropped_and_counted(given: str, used: str) -> None:
    dropped: Counter[str] = Counter()
    assert read_fen(given, dropped=dropped).fen() == used
    before, after = given.split(), used.split()
    wrong = {"castling flags": before[2] != after[2], "en-passant squares": before[3] != after[3]}
    assert dropped == {kind: 1 for kind, is_wrong in wrong.items() if is_wrong}
    read_fen(used, dropped=dropped)
    assert dropped.total() == 1


@pytest.mark.parametrize(
    ("fen", "why"),
    [
        (None, "not a FEN: None"),
        ("4k3/8/8/8/8/8/8/4K3 w - - 1_0 1", "not a FEN.*half-move clock"),
        (f"4k3/8/8/8/8/8/8/4K3 w - - 0 {10**9}", "not a FEN.*move number"),
        (["x"] * 1000, "not a FEN"),
        ("4k3/8/8/8/8/8/4R3/4K3 w - - 0 1", "opposite check"),
        ("8/4P1k1/8/8/8/8/8/8 w - - 0 1", "no white king"),
        ("8/4P1k1/8/8/8/8/8/4K1P1 w - - 0 1", "pawns on backrank"),
        ("4k3/8/8/8/8/8/8/8 w - e6 0 1", "no white king"),
        ("qqqqk3/qqqqqq2/8/8/8/8/QQQQQQ2/QQQQ2K1 w - - 0 1", "too many promoted pieces"),
        ("bqnbnrkr/pppppppp/8/8/8/8/PPPPPPPP/BQNBNRKR w HFhf - 0 1", "Chess960"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR[Qq] w KQkq - 0 1", "not a FEN"),
        ("x" * 100_000, "a FEN cannot have 100000 characters"),
    ],
)
def test_what_is_no_possible_position_is_named(fen: object, why: str) -> None:
    dropped: Counter[str] = Counter()
    with pytest.raises(InvalidInput, match=why) as caught:
        read_fen(fen, dropped=dropped)
    assert len(str(caught.value)) < 400
    assert not dropped


def test_a_report_counts_all_and_names_the_first() -> None:
    report = FenReport()
    read_fen(UNUSABLE[0][0], dropped=report.dropped)
    for number in range(30):
        report.skip(f"x.epd:{number}", "y" * 1000)
    assert report.facts["skipped_count"] == 30
    assert json.loads(json.dumps(report.facts))["dropped"] == {"castling flags": 1}
    assert len(report.skipped) == 20
    assert report.lines("x.epd")[:3] == [
        "x.epd: castling flags dropped: 1",
        "x.epd: left out: 30",
        f"  {report.skipped[0]}",
    ]
    assert FenReport().lines("x.epd") == []


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
