"""Lines of EPD as books and suites have them."""

import re

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.encoding import decode
from rookery.epd import epd_lines, read_epd
from rookery.errors import InvalidInput

MIDDLE = "r1bqk1r1/1p1p1n2/p1n2pN1/2p1b2Q/2P1Pp2/1PN5/PB4PP/R4RK1 w q -"
CASTLES = "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R w KQkq -"
PROMOTES = "8/4P1k1/8/8/8/8/8/4K3 w - -"


@pytest.mark.parametrize(
    ("line", "best", "avoid"),
    [
        (f'{MIDDLE} bm Rxf4; id "WAC";', ["f1f4"], []),
        (f'{MIDDLE} 0 1 bm Rxf4; id "WAC";', ["f1f4"], []),
        (f'{MIDDLE} 0 1; bm f1f4; id "WAC"', ["f1f4"], []),
        (f"{MIDDLE}; bm Rf4 + ; id WAC", ["f1f4"], []),
        (f'{MIDDLE} hmvc 0; fmvn 1; BM Rxf4!; ID "WAC";', ["f1f4"], []),
        (f'{MIDDLE} bm Rxf4, Nd5 ; id "WAC"', ["f1f4", "c3d5"], []),
        (f'{MIDDLE} c0 "a;b \\"c\\"; bm x"; bm Rxf4; v=-385; id "WAC";', ["f1f4"], []),
        (f'{CASTLES} bm 0-0; am O-O-O; id "WAC";', ["e1g1"], ["e1c1"]),
        (f'{PROMOTES} bm e8=Q+; am e8N; id "WAC";', ["e7e8q"], ["e7e8n"]),
    ],
)
def test_lines_of_suites(line: str, best: list[str], avoid: list[str]) -> None:
    epd = read_epd(line)
    assert (epd.id, list(epd.best), list(epd.avoid)) == ("WAC", best, avoid)
    assert epd.board.fen() == f"{' '.join(line.split()[:4]).strip(';')} 0 1"


def test_the_counters_are_those_of_the_fen_or_of_the_operations() -> None:
    for end in ("30 20", "30 20;", 'hmvc 30; fmvn 20; id "x";', "0 1; hmvc 30; fmvn 20"):
        assert read_epd(f"{MIDDLE} {end}").board.fen() == f"{MIDDLE} 30 20"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"{MIDDLE} bm #2;", "bm '#2' is no legal move: unparsable"),
        (f"{MIDDLE} bm 0-0;", "bm '0-0' is no legal move: illegal"),
        (f"{PROMOTES} am --;", "am '--' is no legal move: null_move"),
        (f"{PROMOTES} bm e8;", "bm 'e8' is no legal move: ambiguous"),
        (f"{MIDDLE} bm Sf4;", "bm 'Sf4' is no legal move"),
        (f"{MIDDLE} hmvc x; bm Rxf4;", "not a FEN"),
        (f"{MIDDLE} +0+0 0 1", "no operation: '+0+0 0 1'"),
        ("8/4P1k1/8/8/8/8/8/8 w - - bm e8=Q;", "no white king"),
        ("", "not a FEN"),
        ("x" * 10_000, "a line of 10000 characters"),
    ],
)
def test_what_cannot_be_used_is_named(line: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(why)):
        read_epd(line)


@given(st.text(max_size=80), st.booleans())
def test_any_text_is_read_or_refused(text: str, behind: bool) -> None:
    try:
        board = read_epd(f"{chess.STARTING_FEN} {text}" if behind else text).board
    except InvalidInput:
        return
    assert board.is_valid()


def test_files_in_any_encoding_have_the_same_lines() -> None:
    text = f'# Gr\u00fcnfeld\r\n\r\n{MIDDLE} id "Gr\u00fcnfeld"\n'
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "latin-1"):
        assert list(epd_lines(decode(text.encode(encoding)))) == [(3, f'{MIDDLE} id "Gr\u00fcnfeld"')]
