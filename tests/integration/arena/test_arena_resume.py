"""An evaluation that is killed and started again: real processes, the real reward service."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from rookery.trace import Phase, Position
from tests.boards import random_boards
from tests.conftest import ROOT, free_port
from tests.processes import serving
from tests.waiting import until

pytestmark = [pytest.mark.stockfish, pytest.mark.timeout(300)]

COUNT = 40
PUZZLES = """PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags
back,6k1/2p2ppp/8/8/8/8/5PPP/RR4K1 b - - 0 30,c7c6 b1b8,1010,75,90,100,mate mateIn1,https://lichess.org/b,
fork,4k3/8/8/3q4/8/2N5/8/4K3 b - - 0 1,d5d4 c3b5 d4e4 e1f2,1950,75,90,100,fork,https://lichess.org/c,
"""
SUITE = '4k3/8/8/8/8/8/4P3/4K3 w - - bm e4; id "push";\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with positions of random games, puzzles and a suite."""
    folder, lines = tmp_path_factory.mktemp("questions"), []
    for game, board in enumerate(random_boards(COUNT, seed=1, plies=(6, 45))):
        lines.append(Position(f"r:{game}", board.fen(), board.ply(), Phase.MIDDLEGAME, f"r:{game}"))
    (folder / "positions.jsonl").write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))
    (folder / "puzzles.csv").write_text(PUZZLES)
    (folder / "suite.epd").write_text(SUITE)
    return folder


@pytest.fixture(scope="module")
def reward_target(files: Path) -> Iterator[str]:
    port = free_port()
    flags = ("--grpc-port", port, "--nodes", "100", "--engines", "1")
    with serving("services.reward", *flags, log=files / "reward.log"):
        yield f"dns:///127.0.0.1:{port}"


def command_of(files: Path, reward_target: str, out: Path) -> list[str]:
    command = [sys.executable, "-m", "arena", "evaluate", "random", "stockfish,nodes=20"]
    command += ["--sections", "positions,puzzles,suites", "--positions", str(files / "positions.jsonl")]
    command += ["--count", str(COUNT), "--samples", "2", "--puzzles", str(files / "puzzles.csv")]
    command += ["--suites", str(files / "suite.epd"), "--concurrency", "2"]
    return [*command, "--reward-target", reward_target, "--out", str(out)]


def sections_of(out: Path) -> object:
    return json.loads((out / "report.json").read_text())["sections"]


def test_a_killed_evaluation_gives_the_same_numbers(files: Path, reward_target: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command_of(files, reward_target, whole), cwd=ROOT, check=True, capture_output=True)
    complete = (whole / "answers.jsonl").read_bytes().count(b"\n")
    ledger = killed / "answers.jsonl"
    for share in (0.2, 0.7):
        process = subprocess.Popen(
            command_of(files, reward_target, killed),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        enough = share * complete
        until(
            lambda enough=enough: ledger.exists() and ledger.read_bytes().count(b"\n") >= enough,
            of=process, every_s=0.002,
        )  # fmt: skip
        process.kill()
        process.wait()
    before = ledger.read_bytes()
    assert 0 < before.count(b"\n") < complete
    assert not (killed / "report.json").exists()
    ledger.write_bytes(before[:-7])  # as if the last line had been cut
    subprocess.run(command_of(files, reward_target, killed), cwd=ROOT, check=True, capture_output=True)
    assert sections_of(killed) == sections_of(whole)
    assert ledger.read_bytes().count(b"\n") == complete
    assert ledger.read_bytes().startswith(before[: before.rfind(b"\n", 0, -7) + 1])
