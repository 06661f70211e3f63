"""`python -m bench.moves`: what it prints of a model, with the real engine."""

import json
import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.stockfish]

pytest.importorskip("torch")

from bench.moves import main  # noqa: E402
from services.trainer.tiny import build_tiny  # noqa: E402

FENS = [
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1",
]


def test_each_side_is_measured_on_the_same_positions(
    stockfish_path: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWARD_ENGINE_PATH", stockfish_path)
    rows = [{"id": fen, "fen": fen, "ply": 0, "phase": "opening", "game_id": "g"} for fen in FENS]
    positions = tmp_path / "positions.jsonl"
    positions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = build_tiny(tmp_path / "model", layers=1)
    flags = ["--positions", str(positions), "--samples", "3", "--threads", "1"]
    assert main([str(model), *flags]) == 0
    sides = dict(re.findall(r"^(.+?)  +(legal .+)$", capsys.readouterr().out, re.MULTILINE))
    assert list(sides) == ["greedy", "sampled", "first candidate", "random legal"]
    assert "n=2" in sides["greedy"]
    assert "n=6" in sides["sampled"]
    assert sides["random legal"].startswith("legal 1.0000 ±0.0000 (n=2)")
    assert re.search(r"mates 0\.\d+ ±\S+ \(n=1\)|mates 1\.0000 ±\S+ \(n=1\)", sides["random legal"])
