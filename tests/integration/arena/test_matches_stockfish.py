"""Games with the real Stockfish, and a match whose process is killed in the middle."""

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from arena.matches.journal import read_games
from arena.matches.session import run_match, run_tournament
from rookery.config.arena import MatchSettings, TournamentSettings
from tests.conftest import ROOT
from tests.waiting import until

pytestmark = pytest.mark.stockfish


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def test_stockfish_beats_random_from_both_sides(tmp_path: Path) -> None:
    settings = MatchSettings(
        player="stockfish,nodes=200",
        opponent="random",
        pairs=3,
        referee="stockfish,nodes=500",
        concurrency=4,
        out=tmp_path,
    )
    report = asyncio.run(run_match(settings, console=quiet()))
    (encounter,) = report.encounters
    assert (encounter.wins, encounter.draws, encounter.losses) == (6, 0, 0)
    assert encounter.elo.value is None
    assert encounter.elo.low is not None
    assert set(report.terminations) <= {"checkmate", "adjudication"}
    assert report.players[0].version["engine"].startswith("Stockfish")
    turns = [turn for game in read_games(tmp_path / "games.jsonl") for turn in game.turns]
    assert sum(turn.cp is not None or turn.mate is not None for turn in turns) > 0.8 * len(turns)
    assert "[%eval " in (tmp_path / "games.pgn").read_text()


def test_a_ladder_orders_players_by_their_share_of_random_moves(tmp_path: Path) -> None:
    settings = TournamentSettings(
        players=["random", "epsilon-random,share=0.5,nodes=1", "stockfish,nodes=1"],
        schedule="ladder",
        pairs=6,
        concurrency=4,
        out=tmp_path,
    )
    report = asyncio.run(run_tournament(settings, console=quiet()))
    assert [rating.name for rating in report.ratings.players] == [
        "stockfish-nodes=1",
        "epsilon-random-share=0.5-nodes=1",
        "random",
    ]


def match_process(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "arena", "match", "epsilon-random,share=0.7,nodes=1", "random"]
    command += [
        "--pairs",
        "8",
        "--max-plies",
        "80",
        "--concurrency",
        "4",
        "--sprt",
        "0,150",
        "--out",
        str(out),
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def numbers(out: Path) -> dict[str, object]:
    """match.json without times."""
    report = json.loads((out / "match.json").read_text())
    del report["seconds"]
    for player in report["players"]:
        del player["seconds"]
    return report


def test_a_killed_match_goes_on_to_the_same_games_and_numbers(tmp_path: Path) -> None:
    journal = tmp_path / "killed" / "games.jsonl"
    process = match_process(journal.parent)
    until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 4, of=process, within_s=120)
    process.kill()  # SIGKILL
    process.wait()
    before = journal.read_bytes()
    assert not (journal.parent / "match.json").exists()
    assert match_process(journal.parent).wait(120) == 0
    assert journal.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert match_process(tmp_path / "whole").wait(120) == 0
    assert numbers(journal.parent) == numbers(tmp_path / "whole")
    pgns = [(folder / "games.pgn").read_text() for folder in (journal.parent, tmp_path / "whole")]
    assert pgns[0] == pgns[1]
