"""`rookery data overlap`: positions of exams in data, whatever the form, the clocks or the side."""

import hashlib
import json
from pathlib import Path

import chess
import pytest

from chess_datasets.__main__ import main

SEEN = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"
OTHER = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"
PUZZLE = "6k1/2p2ppp/8/8/8/8/5PPP/RR4K1 b - - 0 30,c7c6 b1b8"


@pytest.fixture
def exams(tmp_path: Path) -> list[str]:
    (tmp_path / "held.jsonl").write_text("".join(json.dumps({"fen": fen}) + "\n" for fen in (SEEN, OTHER)))
    (tmp_path / "puzzles.csv").write_text(f"FEN,Moves\n{PUZZLE}\n")
    return [str(tmp_path / "held.jsonl"), str(tmp_path / "puzzles.csv")]


def overlap(tmp_path: Path, exams: list[str], *data: str) -> dict:
    out = tmp_path / "contamination.json"
    flags = [word for text in data for word in ("--data", text)]
    assert main(["overlap", *exams, *flags, "--out", str(out)]) == 0
    return json.loads(out.read_text())


def test_positions_are_found_in_prompts_mirrored_and_with_other_clocks(exams, tmp_path: Path) -> None:
    mirrored = chess.Board(SEEN).mirror()
    mirrored.halfmove_clock, mirrored.fullmove_number = 9, 40
    board = chess.Board(PUZZLE.partition(",")[0])
    board.push_uci("c7c6")
    rows = [
        {"messages": [{"role": "user", "content": f"Position (FEN): {mirrored.fen()}\nWhite?"}]},
        {"messages": [{"role": "user", "content": "White: Ke1\nBlack: Ke8"}]},
        {"fen": board.fen()},
    ]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = overlap(tmp_path, exams, f"a={data}", f"b={exams[1]}")
    held, puzzles = result["exams"]
    assert (held["name"], held["positions"], held["seen"]) == ("held.jsonl", 2, {"a": 1, "b": 0})
    assert (puzzles["positions"], puzzles["seen"]) == (3, {"a": 1, "b": 3})
    facts = {item["name"]: [item[key] for key in ("positions", "unread", "files")] for item in result["data"]}
    assert facts == {"a": [2, 1, 1], "b": [3, 0, 1]}
    assert {item["fen"]: item["data"] for item in result["positions"]}[SEEN] == {"a": 1}


def test_a_model_s_manifest_names_its_data(exams, tmp_path: Path) -> None:
    model, data = tmp_path / "model", tmp_path / "train.jsonl"
    model.mkdir()
    data.write_text(json.dumps({"fen": SEEN}) + "\n")
    sha256 = hashlib.sha256(data.read_bytes()).hexdigest()
    manifest = {
        "data": {"path": str(data), "sha256": sha256},
        "trained": {"one": {"path": "gone.jsonl", "sha256": "0"}, "two": {"path": str(data), "sha256": "1"}},
        "exams": [{"path": exams[0], "sha256": "2"}],
    }
    (model / "data_manifest.json").write_text(json.dumps(manifest))
    (facts,) = overlap(tmp_path, exams, f"m={model}")["data"]
    assert (facts["files"], facts["sha256"]) == (1, {"train.jsonl": sha256})
    assert facts["missing_files"] == ["gone.jsonl", str(data)], "the second file is another than it was"


@pytest.mark.parametrize(
    ("data", "why"), [("train.jsonl", "write NAME=PATH"), ("a=no/such", "there is no 'no/such'")]
)
def test_wrong_data_is_said(data: str, why: str, exams, tmp_path: Path, capsys) -> None:
    assert main(["overlap", *exams, "--data", data, "--out", str(tmp_path / "x.json")]) == 2
    assert why in capsys.readouterr().err


def test_names_are_those_of_one_and_exams_have_positions(exams, tmp_path: Path, capsys) -> None:
    (tmp_path / "again").mkdir()
    again, empty = tmp_path / "again" / "held.jsonl", tmp_path / "empty.jsonl"
    again.write_text(json.dumps({"fen": SEEN}) + "\n")
    empty.touch()
    data = f"a={exams[0]}"
    for files, named, why in (
        ([*exams, str(again)], [data], "exams: two have the name 'held.jsonl'"),
        (exams, [data, f"a={exams[1]}"], "--data: two have the name 'a'"),
        ([str(empty)], [data], "empty.jsonl' holds no position"),
    ):
        flags = [word for text in named for word in ("--data", text)]
        assert main(["overlap", *files, *flags, "--out", str(tmp_path / "x.json")]) == 2
        assert why in capsys.readouterr().err
