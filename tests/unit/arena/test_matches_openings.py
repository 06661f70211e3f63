import gzip
from pathlib import Path

import chess
import pytest

from rookery.errors import InvalidInput
from rookery.openings import BUILT_IN, Opening, draw, read_openings

START = chess.STARTING_FEN
PGN = '[ECO "C20"]\n\n1. e4 e5 2. Nf3 *\n\n[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"]\n[SetUp "1"]\n\n1. e4 *\n'


def test_the_built_in_book_is_legal_distinct_and_even() -> None:
    openings = read_openings()
    boards = [opening.board() for opening in openings]
    assert len({board.epd() for board in boards}) == len(openings) > 300
    assert {len(board.move_stack) for board in boards} == {6, 8, 10}
    assert all(board.turn and any(board.legal_moves) for board in boards)
    centipawns = [int(line.split("\t")[2]) for line in BUILT_IN.read_text().splitlines()[1:]]
    assert max(map(abs, centipawns)) <= 50


@pytest.mark.parametrize("packed", [False, True])
def test_openings_from_pgn(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("book.pgn.gz" if packed else "book.pgn")
    path.write_bytes(gzip.compress(PGN.encode()) if packed else PGN.encode())
    first, second = read_openings(path, plies=2)
    assert first.name == "C20"
    assert first.moves == ("e2e4", "e7e5")
    assert second.board().fen().startswith("4k3/8/8/8/4P3/8/8/4K3 b")


def test_openings_from_epd_and_fen(tmp_path: Path) -> None:
    path = tmp_path / "book.epd"
    path.write_text('4k3/8/8/8/8/8/4P3/4K3 w - - id "pawn";\n\n4k3/8/8/8/8/8/4P3/4K3 b - - 3 40\n')
    assert read_openings(path) == [
        Opening("pawn", "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"),
        Opening("line 3", "4k3/8/8/8/8/8/4P3/4K3 b - - 3 40"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        f"\ufeff{START}".encode(),
        f"{START};".encode(),
        f"{START} ;\r".encode(),
        f'{START} c0 "Gr\u00fcnfeld";'.encode("latin-1"),
        f"{START}".encode("utf-16"),
        b"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq e6 0 1",
        b"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -; hmvc 0; fmvn 1",
    ],
)
def test_books_as_other_programs_write_them(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "book.epd").write_bytes(line)
    assert read_openings(tmp_path / "book.epd") == [Opening("line 1", START)]


def test_openings_from_the_tables_of_lichess(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("eco\tname\tpgn\nA01\tNimzo-Larsen Attack\t1. b3 e5\n")
    assert read_openings(tmp_path / "a.tsv") == [Opening("A01 Nimzo-Larsen Attack", moves=("b2b3", "e7e5"))]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("book.txt", "", "the name must end in one of"),
        ("book.epd", "", "none"),
        (
            "book.epd",
            "4k3/8/8/8/8/8/4P3/8 w - -\n4k3/8/8/8/8/8/4R3/4K3 w - - 0 1\n",
            "2 lines cannot be used: line 1: .*no white king; line 2: .*opposite check",
        ),
        ("book.epd", "bqnbnrkr/pppppppp/8/8/8/8/PPPPPPPP/BQNBNRKR w HFhf - 0 1", "line 1: .*Chess960"),
        ("book.fen", f"{START} moves\n3+3 {START}", "line 2: not a FEN"),
        ("book.fen", f"{START} 3+3", "line 1: no operation: '3.3'"),
        ("book.pgn", "1. e4 e4 *", "game 1: bad_move: illegal san"),
        ("book.pgn", "1. e4 *\n\n1. e4 e5 2. Sf3 *", "game 2: bad_move: no move: 'Sf3'"),
        ("book.pgn", '1. e4 {never closed\n\n[Event ""]\n\n1. e4 *', "game 1: open_comment"),
        ("book.pgn", '[FEN "8/pppp4/8/8/8/8/8/4K3 w - - 0 1"]\n\n*', "game 1: bad_start: .*no black king"),
        ("book.pgn", '[FEN "4k3/8/8/8/8/8/4R3/4K3 w - - 0 1"]\n\n*', "game 1: bad_start: .*opposite check"),
        ("book.tsv", "eco\tname\tpgn\nC40\tx\t1. e4 e5 2. Sf3\n", "line 2: bad_move: no move: 'Sf3'"),
        ("book.tsv", "eco\tname\tmoves\nA00\tx\te2e4 0000\n", "null move '0000'"),
        ("book.fen", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "finished game"),
        ("book.pgn.gz", "no gzip", "Not a gzipped file"),
        ("book.pgn.gz", gzip.compress(PGN.encode(), mtime=0)[:10] + b"\xff" * 20, "invalid block type"),
        ("book.tsv", "name\tline\nA\te4\n", r"no column eco, pgn: there are \['name', 'line'\]"),
        ("book.tsv", "eco\tname\tmoves\nA00\tShort\n", "line 2: no moves in .*'Short'"),
        ("book.tsv", "eco\tname\tpgn\nA00\tWrong\t1. e5\n", "line 2: bad_move: illegal san"),
    ],
)
def test_books_that_cannot_be_used(name: str, text: str | bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput, match=said):
        read_openings(tmp_path / name)


def test_books_may_be_latin_1_or_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.pgn").write_bytes('[Opening "Grünfeld"]\n\n1. d4 *\n'.encode("latin-1"))
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbfeco\tname\tpgn\nC20\tx\t1. e4\n")
    assert read_openings(tmp_path / "a.pgn") == [Opening("Grünfeld", moves=("d2d4",))]
    assert read_openings(tmp_path / "a.tsv") == [Opening("C20 x", moves=("e2e4",))]


def test_openings_are_drawn_evenly() -> None:
    book = [Opening(str(number)) for number in range(5)]
    drawn = draw(book, 12, seed=1)
    assert drawn == draw(book, 12, seed=1) != draw(book, 12, seed=2)
    assert {drawn.count(opening) for opening in book} == {2, 3}
