"""Pairs from generated positions, a real Stockfish behind a real reward service, and a policy that fails."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import chess
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from chess_datasets.__main__ import main
from chess_datasets.pairs.preference import PAIRS, Pair
from chess_datasets.positions.dataset import POSITIONS
from chess_datasets.positions.numbered import PART_SIZE
from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import read_records
from tests.conftest import ROOT, free_port
from tests.waiting import until

pytestmark = pytest.mark.stockfish

FAST = ["--nodes", "50", "--candidates", "3"]


class Student:
    """An inference server whose model knows the rules and plays anything; away for the first requests."""

    def __init__(self, *, failures: int = 0) -> None:
        self.failures = failures
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        app = FastAPI()

        @app.post("/v1/chat/completions")
        async def complete(request: Request) -> Response:
            if self.failures:
                self.failures -= 1
                return Response("loading", status_code=503)
            body = await request.json()
            fen = body["messages"][-1]["content"].partition("(FEN): ")[2]
            moves = sorted(move.uci() for move in chess.Board(fen).legal_moves)
            choices = [
                {
                    "index": i,
                    "finish_reason": "stop",
                    "message": {
                        "content": f"Why not \\boxed{{{random.Random(body['seed'] + i).choice(moves)}}}"
                    },
                    "token_ids": [5],
                    "logprobs": {"content": [{"logprob": -0.5}]},
                }
                for i in range(body["n"])
            ]
            content = json.dumps({"prompt_token_ids": [1], "choices": choices})
            return Response(content, media_type="application/json")

        self.server = uvicorn.Server(
            uvicorn.Config(app, port=self.port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        )

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = Thread(target=lambda: asyncio.run(self.server._serve()), daemon=True)
        thread.start()
        until(lambda: self.server.started or not thread.is_alive())
        assert self.server.started
        yield
        self.server.should_exit = True
        thread.join(timeout=120)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    # `pairs.dataset` first: if it were imported now, it would take the small size as its own and keep it.
    for module in ("pairs.dataset", "positions.numbered"):
        monkeypatch.setattr(f"chess_datasets.{module}.PART_SIZE", 32)


def pairs_in(folder: Path) -> list[Pair]:
    return list(read_records(open_folder(folder), "pairs.parquet", PAIRS))


def make(folder: Path, *flags: str, count: int = 24) -> list[Pair]:
    assert main(["pairs", "--count", str(count), "--out", str(folder), *FAST, *flags]) == 0
    return pairs_in(folder)


@pytest.mark.usefixtures("small_parts")
def test_every_pair_is_true(tmp_path: Path) -> None:
    pairs = make(tmp_path, "--jsonl", "pairs.jsonl.zst", "--min-gap", "0.1", "--max-gap", "0.6")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(pairs) == manifest["pairs"] == sum(manifest["by_phase"].values()) == 24
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "manifest.json",
        "pairs.jsonl.zst",
        "pairs.parquet",
    ]
    for pair in pairs:
        board = chess.Board(pair.fen)
        assert board.is_legal(chess.Move.from_uci(pair.chosen_move.uci))
        assert board.parse_san(pair.rejected_move.san).uci() == pair.rejected_move.uci
        assert 0.1 <= pair.gap <= 0.6
        assert pair.gap == pytest.approx(pair.win_chosen - pair.win_rejected)
    for output in manifest["outputs"]:
        assert open_folder(tmp_path).sha256(output["path"]) == output["sha256"]


@pytest.mark.usefixtures("small_parts")
def test_the_same_recipe_gives_the_same_bytes(tmp_path: Path) -> None:
    make(tmp_path / "a", count=12)
    make(tmp_path / "b", "--jobs", "2", count=12)
    make(tmp_path / "c", "--seed", "1", count=12)
    a, b, c = ((tmp_path / name / "pairs.parquet").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.usefixtures("small_parts")
def test_the_policy_s_own_moves_are_rejected(tmp_path: Path) -> None:
    student = Student(failures=2)
    with student.serving():
        pairs = make(tmp_path, "--style", "fen", "--inference", student.url, "--model", "student")
    own = [pair for pair in pairs if pair.origin == "policy"]
    assert len(own) > 12
    for pair in own:
        assert pair.policy == "student"
        assert f"\\boxed{{{pair.rejected_move.uci}}}" in pair.policy_text


def test_a_policy_that_stays_away_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chess_datasets.pairs.dataset._PAUSES_S", (0.01,))
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["pairs", "--count", "5", "--out", str(tmp_path), *FAST, "--inference", url]) == 1
    assert f"error: POST {url}/v1/chat/completions: ConnectError [Errno 111]" in capsys.readouterr().err
    assert not (tmp_path / "pairs.parquet").exists()


def test_positions_may_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["sample", "--split", "heldout", "--count", "30", "--per-game", "9"]
    assert main([*argv, "--out", str(tmp_path / "set")]) == 0
    given = read_records(open_folder(tmp_path / "set"), "positions.parquet", POSITIONS)
    fens = {position.fen for position in given}
    flags = ["--positions", str(tmp_path / "set" / "positions.parquet"), "--style", "fen"]
    pairs = make(tmp_path / "out", *flags, count=100)
    assert 10 < len(pairs) <= len(fens) == 30
    assert {pair.fen for pair in pairs} <= fens
    assert "100 were asked for; there are no more positions" in capsys.readouterr().err


@pytest.mark.usefixtures("small_parts")
def test_games_may_be_given(tmp_path: Path) -> None:
    pairs = make(tmp_path, "--split", "heldout", "--source", "samples/lichess.pgn.zst", count=20)
    assert len({pair.game_id for pair in pairs}) > 10
    assert all(pair.id.startswith("8999067f:") for pair in pairs)


def test_killed_work_goes_on(tmp_path: Path, bucket: str, s3_environment: dict[str, str]) -> None:
    """Onto S3, killed after a part is there: the second run makes the rest, and the same bytes as one run."""
    count = PART_SIZE * 3 // 2
    out = f"{bucket}/pairs"
    argv = [sys.executable, "-m", "chess_datasets", "pairs", "--count", str(count), "--out", out, *FAST]
    process = subprocess.Popen(argv, cwd=ROOT, env=s3_environment, process_group=0)
    folder = open_folder(out)
    until(lambda: folder.names(suffix=".parquet"), of=process, within_s=120)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = folder.names(suffix=".parquet")
    assert before[0].startswith("parts/")
    assert "pairs.parquet" not in before
    assert main(["pairs", "--count", str(count), "--out", out, *FAST, "--seed", "5"]) == 2
    assert main(["pairs", "--count", str(count), "--out", out, *FAST]) == 0
    assert folder.names() == ["manifest.json", "pairs.parquet"]
    make(tmp_path, count=count)
    assert folder.sha256("pairs.parquet") == open_folder(tmp_path).sha256("pairs.parquet")
