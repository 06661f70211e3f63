"""`rookery data annotate` with a real Stockfish: three forms of one set, and the same bytes after a stop."""

import json
from pathlib import Path

import chess
import pytest

from chess_datasets.__main__ import main
from chess_datasets.annotate.annotating import ANNOTATIONS
from chess_datasets.annotate.compose import Annotation
from chess_datasets.jobs import Progress
from chess_datasets.positions.distinct import position_key
from chess_datasets.store.folders import open_folder
from chess_datasets.store.jsonl import read_jsonl
from chess_datasets.store.parquet import read_records

pytestmark = pytest.mark.stockfish

FAST = ["--nodes", "300", "--engines", "1"]


def annotate(folder: Path, *flags: str, count: int) -> list[Annotation]:
    assert main(["annotate", "--count", str(count), "--out", str(folder), *FAST, *flags]) == 0
    return list(read_records(open_folder(folder), "annotations.parquet", ANNOTATIONS))


def test_one_set_in_three_forms(tmp_path: Path) -> None:
    annotations = annotate(tmp_path, count=6)
    chats = json.loads((tmp_path / "analysis.json").read_text())
    lines = list(read_jsonl(open_folder(tmp_path), "annotations.jsonl"))
    assert len(annotations) == 6
    assert chats == [line["messages"] for line in lines] == [one.messages for one in annotations]
    for one in annotations:
        assert [turn["role"] for turn in one.messages][-2:] == ["user", "assistant"]
        assert one.answer.startswith("<think>\n")
        assert one.answer.rstrip().endswith(f"\\boxed{{{one.move.san}}}")
        assert chess.Board(one.fen).parse_san(one.move.san).uci() == one.move.uci
        assert one.claims > 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    effort = manifest["terms"]["effort"]
    assert (effort["nodes"], effort["screen_nodes"], effort["side_nodes"]) == (300, 30, 150)
    assert manifest["claims"] == sum(one.claims for one in annotations)
    for output in manifest["outputs"]:
        assert open_folder(tmp_path).sha256(output["path"]) == output["sha256"]


def test_the_same_flags_give_the_same_bytes(tmp_path: Path) -> None:
    annotate(tmp_path / "a", count=9)
    annotate(tmp_path / "b", "--engines", "2", count=9)
    assert (tmp_path / "a" / "annotations.parquet").read_bytes() == (
        tmp_path / "b" / "annotations.parquet"
    ).read_bytes()
    assert [one.voice for one in annotate(tmp_path / "c", "--voice", "coach", count=2)] == ["coach"] * 2


class Stopped(Exception):
    pass


def test_stopped_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chess_datasets.positions.numbered.PART_SIZE", 4)
    whole = annotate(tmp_path / "whole", count=10)
    advance = Progress.advance

    def stop(progress: Progress, count: int) -> None:
        stop.told += count  # type: ignore[attr-defined]
        if stop.told == 6:  # type: ignore[attr-defined]
            raise Stopped
        advance(progress, count)

    stop.told = 0  # type: ignore[attr-defined]
    with monkeypatch.context() as stopping, pytest.raises(Stopped):
        stopping.setattr(Progress, "advance", stop)
        annotate(tmp_path / "stopped", count=10)
    assert len(list((tmp_path / "stopped" / "parts").glob("*.parquet"))) == 1
    assert annotate(tmp_path / "stopped", count=10) == whole
    assert len({position_key(one.fen) for one in whole}) == len(whole) == 10
    one, two = ((tmp_path / name / "manifest.json").read_bytes() for name in ("whole", "stopped"))
    assert one == two


def test_positions_that_end_give_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["sample", "--split", "heldout", "--count", "10", "--out", str(tmp_path / "set")]
    assert main(argv) == 0
    positions = str(tmp_path / "set" / "positions.parquet")
    assert len(annotate(tmp_path / "out", "--positions", positions, count=19)) <= 10
    assert "19 were asked for; there are no more positions" in capsys.readouterr().err
