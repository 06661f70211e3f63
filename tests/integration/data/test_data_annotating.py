"""`rookery data annotate` with a real Stockfish: three forms of one set, and the same bytes after a stop."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import chess
import pytest

from rookery.engines import EnginePool
from services.data.__main__ import main
from services.data.annotate import Annotation, Annotator, Effort, Manner
from services.data.annotate.annotating import ANNOTATIONS, Annotating
from services.data.positions.distinct import position_key
from services.data.positions.generator import PositionGenerator
from services.data.positions.numbered import NumberedPositions
from services.data.store.datasets import Parts
from services.data.store.folders import open_folder
from services.data.store.jsonl import read_jsonl
from services.data.store.parquet import read_records

pytestmark = pytest.mark.stockfish

FAST = ["--nodes", "300", "--jobs", "0"]


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
    annotate(tmp_path / "a", count=4)
    annotate(tmp_path / "b", "--engines", "2", count=4)
    assert (tmp_path / "a" / "annotations.parquet").read_bytes() == (
        tmp_path / "b" / "annotations.parquet"
    ).read_bytes()
    assert [one.voice for one in annotate(tmp_path / "c", "--voice", "coach", count=2)] == ["coach"] * 2


class Stopped(Exception):
    pass


@pytest.fixture
def few_a_part(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in ("positions.numbered", "annotate.annotating"):
        monkeypatch.setattr(f"services.data.{module}.PART_SIZE", 4)
    yield


def test_stopped_work_goes_on(tmp_path: Path, stockfish_path: str, few_a_part: None) -> None:
    supply = NumberedPositions(PositionGenerator(least_moves=2).position)

    async def make(folder: Path, *, wanted: int, stop_after: int = 10**6) -> list[Annotation]:
        pool = EnginePool(Path(stockfish_path), engines=1, hash_mb=16, queue=64, deadline_s=60)
        parts = Parts(open_folder(folder), ANNOTATIONS, terms={})
        told = 0

        def advance(count: int) -> None:
            nonlocal told
            told += count
            if told >= stop_after:
                raise Stopped

        async with asyncio.timeout(120):
            await pool.start()
            try:
                annotator = Annotator(pool, "fen", Manner(), Effort.of(300, lines=3))
                annotating = Annotating(supply, annotator, parts, wanted)
                await annotating.run(ahead=3, advance=advance)
                return list(annotating.annotations())
            finally:
                await pool.close()

    whole = asyncio.run(make(tmp_path / "whole", wanted=10))
    with pytest.raises(Stopped):
        asyncio.run(make(tmp_path / "stopped", wanted=10, stop_after=6))
    assert len(list((tmp_path / "stopped" / "parts").glob("*.parquet"))) == 1
    assert asyncio.run(make(tmp_path / "stopped", wanted=10)) == whole
    assert len({position_key(one.fen) for one in whole}) == len(whole) == 10


def test_positions_that_end_give_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["sample", "--split", "heldout", "--count", "10", "--out", str(tmp_path / "set")]
    assert main(argv) == 0
    positions = str(tmp_path / "set" / "positions.parquet")
    assert len(annotate(tmp_path / "out", "--positions", positions, count=19)) <= 10
    assert "19 were asked for; there are no more positions" in capsys.readouterr().err
