"""`P:` lines labelled by the real Stockfish: sound for both colours and the same every time."""

import json
from functools import cache
from pathlib import Path

import chess
import pytest

from chess_datasets.__main__ import main
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.tasks.rookworld import RookworldMix, labelled_line
from rookery.engines import EnginePool
from rookery.rookworld import PolicyLine, parse_policy_line, parse_state_line
from rookery.rookworld_env import step
from rookery.trace import Position


@cache
def positions() -> list[Position]:
    return list(map(PositionGenerator(seed=11).position, range(12)))


async def labelled(stockfish_path: str, asked: list[Position]) -> list[PolicyLine]:
    mix = RookworldMix(state=0.0)
    async with EnginePool(Path(stockfish_path), engines=2, hash_mb=16, queue=1000, deadline_s=30.0) as pool:
        made = [await labelled_line(one, pool, nodes=2000, mix=mix) for one in asked]
    assert all(isinstance(line, PolicyLine) for line in made)
    return [line for line in made if isinstance(line, PolicyLine)]


def mirrored(position: Position) -> Position:
    fen = chess.Board(position.fen).mirror().fen()
    return Position(position.id, fen, position.ply, position.phase, position.game_id)


def flipped(uci: str) -> str:
    return "".join(str(9 - int(c)) if c.isdigit() else c for c in uci)


@pytest.mark.stockfish
async def test_labels_are_sound_reproducible_and_blind_to_colour(stockfish_path: str) -> None:
    first = await labelled(stockfish_path, positions())
    assert await labelled(stockfish_path, positions()[::-1]) == first[::-1]
    for line in first:
        legal = {move.uci() for move in chess.Board(line.fen).legal_moves}
        answer = line.answer
        assert set(answer.moves) <= legal
        assert len(set(answer.moves)) == min(5, len(legal))
        assert answer.evals[answer.moves.index(answer.best)] == max(answer.evals)
    for line, mirror in zip(
        first, await labelled(stockfish_path, list(map(mirrored, positions()))), strict=True
    ):
        answer = line.answer
        assert mirror.answer.best == flipped(answer.best)
        assert (tuple(map(flipped, answer.moves)), answer.evals) == (mirror.answer.moves, mirror.answer.evals)


@pytest.mark.stockfish
def test_the_command_writes_lines_that_read_back(
    stockfish_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--count", "40", "--nodes", "1000", "--engines", "2", "--engine", stockfish_path]
    argv = ["tasks", "rookworld", *flags, "--text", "lines.txt", "--state-share", "0.5"]
    assert main([*argv, "--out", str(tmp_path / "one")]) == 0
    assert main([*argv, "--out", str(tmp_path / "two")]) == 0
    text = (tmp_path / "one" / "lines.txt").read_text()
    assert text == (tmp_path / "two" / "lines.txt").read_text()
    lines = text.splitlines()
    policies = [parse_policy_line(line) for line in lines if line.startswith("P: ")]
    states = [parse_state_line(line) for line in lines if line.startswith("A: ")]
    assert len(policies) + len(states) == 40
    assert 8 < len(states) < 32
    assert all(step(state.fen, state.move).answer == state.answer for state in states)


@pytest.mark.stockfish
def test_engine_moves_are_resumable_data_for_sft(stockfish_path: str, tmp_path: Path) -> None:
    flags = ["--count", "12", "--nodes", "500", "--engine", stockfish_path, "--jsonl", "moves.jsonl"]
    flags += ["--style", "mover-squares", "--random-moves", "0.5", "--temperature", "0.1", "--remarks", "1"]
    for name in ("one", "two"):
        assert main(["tasks", "engine-moves", *flags, "--out", str(tmp_path / name)]) == 0
    first, second = ((tmp_path / name / "moves.jsonl").read_text() for name in ("one", "two"))
    assert first == second
    for row in map(json.loads, first.splitlines()):
        answer = row["messages"][-1]["content"]
        for part in row["alternatives"]:
            assert answer[part["start"] : part["end"]] in part["texts"]
            assert sum(part["weights"]) > 0


@pytest.mark.stockfish
def test_only_positions_in_check_and_the_manifest_says_so(stockfish_path: str, tmp_path: Path) -> None:
    flags = ["--count", "6", "--nodes", "500", "--engine", stockfish_path, "--jsonl", "moves.jsonl"]
    flags += ["--only", "check", "--source", "samples/lichess.pgn.zst", "--out", str(tmp_path)]
    assert main(["tasks", "engine-moves", *flags]) == 0
    rows = [json.loads(line) for line in (tmp_path / "moves.jsonl").read_text().splitlines()]
    assert len(rows) == 6
    assert all(chess.Board(row["fen"]).is_check() for row in rows)
    assert json.loads((tmp_path / "manifest.json").read_text())["terms"]["positions"]["only"] == "check"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ([], "--only check needs --source"),
        (
            ["--source", "samples/lichess.pgn.zst", "--random-moves", "0.5"],
            "--only, --random-moves: choose one",
        ),
    ],
)
def test_only_takes_games_as_they_are(
    flags: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["tasks", "legal-moves", "--count", "1", "--only", "check", *flags, "--out", str(tmp_path)]) != 0
    )
    assert complaint in capsys.readouterr().err
