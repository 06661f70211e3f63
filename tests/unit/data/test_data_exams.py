"""No position of an evaluation gets into a data set, whatever file the evaluation is in."""

import bz2
import csv
import gzip
import io
import json
from pathlib import Path

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

from chess_datasets.__main__ import main
from chess_datasets.positions.dataset import FORMS
from chess_datasets.positions.distinct import position_key
from chess_datasets.positions.exams import read_evaluation_files
from rookery.errors import InvalidInput

START = chess.STARTING_FEN
PUZZLE = "6k1/5ppp/8/8/8/8/r4PPP/1R4K1 b - - 0 30"
MOVES = ("a2a3", "b1b8")
OTHERS = ["8/8/1n6/8/7K/8/3k4/1Q6 w - - 3 40", "r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1"]


def after(fen: str, moves: tuple[str, ...]) -> list[str]:
    board = chess.Board(fen)
    fens = [board.fen()]
    for uci in moves:
        board.push_uci(uci)
        fens.append(board.fen())
    return fens


ALL = [*after(PUZZLE, MOVES), *OTHERS]
ROWS = [{"FEN": PUZZLE, "Moves": " ".join(MOVES)}, *({"FEN": fen, "Moves": ""} for fen in OTHERS)]


def table(rows: list[dict[str, str]], **form: object) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), **form)  # type: ignore[arg-type]
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet(rows: list[dict[str, object]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def lines(values: list[object]) -> bytes:
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


def games(fens: list[str]) -> list[str]:
    return [f'[Event "?"]\n[SetUp "1"]\n[FEN "{fen}"]\n\n*\n\n' for fen in fens]


def fields(fen: str) -> str:
    return " ".join(fen.split()[:4])


SOLVED = f'[Event "?"]\n[FEN "{PUZZLE}"]\n\n30... Ra3 31. Rb8# *\n\n'
FORMATS: dict[str, bytes] = {
    "fen": "\n".join(ALL).encode(),
    "fen with a byte order mark": b"\xef\xbb\xbf" + "\r\n".join(ALL).encode(),
    "fen in UTF-16": "\n".join(ALL).encode("utf-16"),
    "text around it": "\n".join(f"P: {fen}   M: e2e4" for fen in ALL).encode(),
    "epd": "\n".join(["# Gr\xfcnfeld", "", *(f"{fields(fen)} bm Kf1;" for fen in ALL)]).encode("latin-1"),
    "epd with counters": "\n".join(f"{fen} bm Kf1;" for fen in ALL).encode(),
    "epd with a semicolon": "\n".join(f"{fields(fen)}; v=-385" for fen in ALL).encode(),
    "csv": table(ROWS),
    "csv with quotes": table(ROWS, quoting=csv.QUOTE_ALL),
    "csv with other columns between": table([{"Moves": r["Moves"], "n": "1", "FEN": r["FEN"]} for r in ROWS]),
    "csv with semicolons": table(ROWS, delimiter=";"),
    "tsv": table(ROWS, delimiter="\t"),
    "csv with comments": b"# exam\n\n" + b"\r\n# a, b\n\n".join(table(ROWS).split(b"\r\n")),
    "csv in UTF-16": table(ROWS).decode().encode("utf-16"),
    "csv in Latin-1": table([{**row, "Name": "Gr\xfcnfeld"} for row in ROWS]).decode().encode("latin-1"),
    "csv of one column": "\n".join(["fen", "# comment", *ALL]).encode(),
    "csv without a header": table(ROWS).partition(b"\n")[2],
    "csv with quotes without a header": table(ROWS, quoting=csv.QUOTE_ALL).partition(b"\n")[2],
    "jsonl": lines([{"fen": r["FEN"], "moves": r["Moves"]} for r in ROWS]),
    "jsonl with lists of moves": lines([{"fen": r["FEN"], "moves": r["Moves"].split()} for r in ROWS]),
    "jsonl with escaped slashes": lines([{"fen": fen} for fen in ALL]).replace(b"/", b"\\/"),
    "jsonl of questions": lines([{"question": f"Which move is best in {fen}?"} for fen in ALL]),
    "jsonl of conversations": lines([{"messages": [{"role": "user", "content": fen}]} for fen in ALL]),
    "json report": json.dumps({"sections": {"a": [{"fen": fen} for fen in ALL]}, "n": 1}, indent=2).encode(),
    "json list": json.dumps(ALL).encode(),
    "json list of games": json.dumps([SOLVED, *games(OTHERS)]).encode(),
    "pgn": "".join([SOLVED, *games(OTHERS)]).encode(),
    "parquet": parquet([{"fen": fen, "id": "x"} for fen in ALL]),
    "parquet of puzzles": parquet(ROWS),  # type: ignore[arg-type]
    "parquet of traces": parquet([{"prompt": {"fen": fen, "messages": [{"content": "?"}]}} for fen in ALL]),
}  # fmt: skip


@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS)
def test_every_format_gives_all_its_positions(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "exam"
    packs = (gzip.compress, bz2.compress, zstd.compress)
    for packed in (content, *(pack(content) for pack in packs if not content.startswith(b"PAR1"))):
        path.write_bytes(packed)
        keys, [exam] = read_evaluation_files([str(path)])
        wanted = {position_key(fen) for fen in ALL}
        assert (len(keys), wanted) == (len(wanted), {key for key in wanted if key in keys})
        assert (exam.summary["path"], exam.positions) == ("exam", len(ALL))


BAD = "8/8/8/8/8/8/8/8 w - - 0 1"
GOOD = OTHERS[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no position"),
        (b"# nothing\n", "holds no position"),
        (f"{GOOD}\n\nno position\n".encode(), "exam', line 3: no position in 'no position"),
        (f"{GOOD}\n{BAD}\n".encode(), "exam', line 2: impossible position '8/8"),
        (f"{GOOD}\n9/8/8/8/8/8/8/8 w - -\n".encode(), "line 2: no position"),
        (f"{GOOD}\n8/8/8/8/8/8/k1K5/8 w\n".encode(), "line 2: not a FEN: None: '8/8"),
        (f"{GOOD} {BAD}\n".encode(), "line 1: impossible position"),
        (table([*ROWS, {"FEN": BAD, "Moves": ""}]), "line 5: impossible position"),
        (table([*ROWS, {"FEN": "", "Moves": ""}]), "line 5: not a FEN: '': empty fen"),
        (table([ROWS[0] | {"Moves": "a2a3 b1b9"}]), "line 2: the move 'b1b9' is not legal"),
        (table(ROWS) + b"x\n", "line 5: not a FEN: 'x'"),
        (table(ROWS) + f"\n# a\n\n{BAD},\n".encode(), "line 8: impossible position"),
        (f"FEN,Moves\n\n\n{BAD},\n".encode(), "line 4: impossible position"),
        (f"id,FEN\n#1,{BAD}\n".encode(), "line 2: impossible position"),
        (b"FEN\n" + b"x" * 200_000, "exam:2: field larger"),
        (f"id,{PUZZLE},a2a3 a2a3,1\n".encode(), "line 1: the move 'a2a3' is not legal"),
        (lines([{"fen": GOOD}, {"fen": None}]), "line 2: not a FEN: None"),
        (lines([{"fen": GOOD}, {"text": "?"}]), "line 2: no position in \"{'text'"),
        (lines([{"fen": GOOD}]) + b"\n{", "exam:3' is not JSON"),
        (json.dumps([{"fen": GOOD}, {"fen": 7}]).encode(), "exam', item 2: not a FEN: 7"),
        (
            json.dumps({"positions": [{"fen": GOOD}, {"nofen": 1}]}, indent=1).encode(),
            "item 2: no position in",
        ),
        (json.dumps({"players": {}}, indent=1).encode(), "exam', item 1: no position in"),
        ("".join([SOLVED, SOLVED.replace("Rb8#", "Rb9")]).encode(), "game 2 at byte 83"),
        ("".join([SOLVED, *games([BAD])]).encode(), "game 2"),
        (parquet([{"fen": GOOD}, {"fen": None}]), "exam', row 2: not a FEN: None"),
        (parquet([{"fen": GOOD}, {"fen": "not a fen"}]), "row 2: not a FEN: 'not a fen'"),
        (parquet([{"name": "x"}]), "row 1: no position"),
        (parquet([{"fen": GOOD}])[:-30], "not a Parquet file"),
        (gzip.compress(f"{GOOD}\n".encode() * 99, mtime=0)[:-9], "cut off"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_place(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "exam"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        read_evaluation_files([str(path)])
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "fen",
    [
        "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1",
        "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e6 0 1",
        "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b HAha - 0 1",
    ],
)
def test_flags_that_mean_nothing_make_no_difference(fen: str, tmp_path: Path) -> None:
    path = tmp_path / "exam.epd"
    path.write_text(fen)
    same = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
    assert position_key(same) in read_evaluation_files([str(path)])[0]


@pytest.mark.parametrize("form", FORMS)
def test_an_exam_of_its_own_output_leaves_nothing_of_it(
    form: str, sample_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def sample(name: str, *flags: str) -> tuple[set[int], int]:
        argv = ["sample", "--source", str(sample_path), "--games", "0.03", "--count", "40", "--form", form]
        assert main([*argv, "--out", str(tmp_path / name), *flags]) == 0
        keys, _ = read_evaluation_files([file := str(tmp_path / name / f"positions.{form}")])
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert len(keys) == manifest["positions"] == 40
        return {position_key(fen) for fen in fens(file)}, manifest["in_exams"]

    exam, _ = sample("exam")
    again, in_exams = sample("again", "--exam", str(tmp_path / "exam" / f"positions.{form}"))
    assert len(exam) == len(again) == 40
    assert not exam & again
    assert in_exams >= 40
    assert f"left out because --exam files have them: {in_exams}" in capsys.readouterr().err


def fens(file: str) -> list[str]:
    if file.endswith(".parquet"):
        return pq.read_table(file)["fen"].to_pylist()
    content = Path(file).read_bytes()
    text = zstd.decompress(content) if file.endswith(".zst") else content
    return [json.loads(line)["fen"] for line in text.splitlines()]
