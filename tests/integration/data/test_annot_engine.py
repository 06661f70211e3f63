"""Annotations with the real engine at few nodes, over positions of every kind."""

import csv
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import chess
import pytest

from bench.annotations.audit import LOG, Audit
from chess_datasets.annotate.annotating import AnnotationRecipe
from chess_datasets.annotate.compose import Manner
from chess_datasets.annotate.study import Effort
from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.sources import find_sources
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from rookery.engines import EnginePool
from rookery.trace import Position
from rookery.uci import Query
from rookery.winprob import win_probability
from tests.builders import position
from tests.conftest import ROOT

pytestmark = pytest.mark.stockfish

EFFORT = Effort(nodes=1500, screen_nodes=1500, side_nodes=500)
SPECIAL = (
    "8/P3k3/8/8/8/8/4K3/8 w - - 0 1",  # promotion
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",  # en passant
    "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",  # castling, both sides
    "7k/8/8/8/8/8/6rr/K7 w - - 0 1",  # one legal move, lost
    "4k3/8/8/8/8/8/4r3/4K3 w - - 0 1",  # in check
    "3k4/8/3r4/8/8/5b2/8/3K4 w - - 0 1",  # in double check
    "8/8/8/8/8/5k2/5p2/5K2 b - - 0 1",  # stalemate in the air
    "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1",  # mate in one
    "1n1q3k/P1P5/8/8/8/8/8/4K3 w - - 0 1",  # promotions by capture
)


@asynccontextmanager
async def engines(path: str) -> AsyncIterator[EnginePool]:
    pool = EnginePool(Path(path), engines=1, hash_mb=4, queue=256, deadline_s=60)
    try:
        yield await pool.start()
    finally:
        await pool.close()


def sampled(count: int) -> list[Position]:
    games = GameCollection(find_sources([str(ROOT / "samples" / "lichess.pgn.zst")]))
    try:
        return list(islice(PositionOrder(games, shares=Shares(), split="heldout").distinct(seed=1), count))
    finally:
        games.close()


async def test_no_first_draft_says_anything_false(stockfish_path: str, tmp_path: Path) -> None:
    positions = [(fen, None) for fen in SPECIAL]
    positions += [(one.fen, next(reversed(one.last_moves), None)) for one in sampled(150)]
    async with engines(stockfish_path) as pool:
        tally = await Audit(tmp_path, pool, effort=EFFORT, plants=False).run(positions, ahead=12)
    assert tally.texts == len(positions)
    assert (tally.false, tally.unread) == (0, 0)
    assert tally.claims > 20 * len(positions)
    assert "recaptur" in (tmp_path / LOG).read_text()


async def test_no_blunder_is_recommended(stockfish_path: str) -> None:
    # 44...g4, which 50,000 nodes still call best, loses the queen to 45.Rxg4+.
    fen = "6k1/8/2p5/6p1/P1P1q2p/8/1P4RK/5R2 b - - 5 44"
    async with engines(stockfish_path) as pool:
        annotation = await AnnotationRecipe().annotate(position(fen), pool)
        assert annotation is not None
        best, chosen = [
            (await pool.search(Query(fen, 100_000, move=move))).evaluation
            for move in (None, annotation.move.uci)
        ]
    assert annotation.move.san != "g4"
    assert win_probability(best) - win_probability(chosen) < 0.1


@pytest.mark.shared_data
async def test_tactical_positions_are_no_exception(
    stockfish_path: str, shared_data: Path, tmp_path: Path
) -> None:
    positions = [(fen, None) for fen in islice(_puzzles(shared_data), 60)]
    async with engines(stockfish_path) as pool:
        tally = await Audit(tmp_path, pool, effort=EFFORT).run(positions, ahead=12)
    assert (tally.false, tally.unread) == (0, 0)
    assert tally.summary()["caught"] > 0.8


def _puzzles(shared_data: Path) -> Iterator[str]:
    with (shared_data / "puzzles_lichess_kagi" / "puzzles_dev_999.csv").open() as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            board = chess.Board(row[1])
            board.push_uci(row[2].split()[0])
            yield board.fen()


@pytest.mark.parametrize("style", ["mover-pieces", "board"])
async def test_any_prompt_style_gets_its_answer(stockfish_path: str, style: str) -> None:
    fen = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq - 0 3"
    black = position(fen)
    async with engines(stockfish_path) as pool:
        annotation = await AnnotationRecipe(style, Manner(box="uci"), EFFORT).annotate(black, pool)
    assert annotation is not None
    assert chess.Move.from_uci(annotation.move.uci) in chess.Board(annotation.fen).legal_moves


def test_the_command(stockfish_path: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.annotations", "--count", "6", "--jobs", "0"]
    command += ["--out", str(tmp_path / "c"), "--engine-path", stockfish_path, "--nodes", "800"]
    checked, again = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
        for _ in range(2)
    )
    assert json.loads(checked)["false_claims"] == 0
    assert again == checked


def test_a_broken_position_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "fens").write_text("8/8/8/8 w\n")
    command = [sys.executable, "-m", "bench.annotations", "--count", "1", "--jobs", "0"]
    command += ["--out", str(tmp_path / "c"), "--fens", str(tmp_path / "fens")]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1
    assert "error: " in answer.stderr
    assert "Traceback" not in answer.stderr
