"""Work of the data service in several processes, and a command whose reader has enough."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chess_datasets.pgn.index import index_location
from chess_datasets.pgn.indexing import write_index
from chess_datasets.pgn.reader import handle_file, read_raw_games
from chess_datasets.positions.dataset import write_games, write_positions
from chess_datasets.positions.recipe import GamesRecipe, PositionRecipe
from chess_datasets.store.files import Source, identify
from chess_datasets.tasks.moves import MovesRecipe, write_moves
from rookery.processes.workers import Workers
from tests.conftest import ROOT
from tests.unit.data.test_data_pieces import GAMES, Every, announced, compressed, piecewise
from tests.unit.data.texts import COMPRESSORS, outline


def test_several_processes_share_the_work(tmp_path: Path) -> None:
    text = "".join(GAMES * 20).encode()
    frames, whole = tmp_path / "frames.pgn.zst", tmp_path / "whole.pgn.zst"
    frames.write_bytes(announced(compressed(text, cuts=range(5000, 70_000, 5000))))
    whole.write_bytes(COMPRESSORS[".pgn.zst"](text))
    with Workers(2) as workers:
        assert piecewise(frames, workers) == piecewise(frames)
        assert outline(piecewise(whole, workers)) == outline(read_raw_games(whole))
        for file in (frames, whole):
            sources: list[Source] = []
            list(handle_file(str(file), Every(), workers, identified=sources.append))
            assert sources == [identify(str(file))]


def test_several_processes_write_the_same_index(tmp_path: Path) -> None:
    text = "".join(GAMES * 5).encode()
    sample = tmp_path / "games.pgn.zst"
    sample.write_bytes(announced(compressed(text, cuts=range(200, len(text), 300))))
    about = write_index(str(sample))
    once = Path(index_location(str(sample))).read_bytes()
    assert write_index(str(sample), jobs=2) == about
    assert Path(index_location(str(sample))).read_bytes() == once


@pytest.mark.parametrize(
    ("write", "recipe"),
    [
        (write_positions, PositionRecipe(count=60, seed=5, games=0.05)),
        (write_games, GamesRecipe(split="all", form="moves", games=0.05)),
        (write_moves, MovesRecipe(count=300, seed=3, split="all")),
    ],
)
def test_several_processes_write_the_same_data_set(
    tmp_path: Path, write: Callable[..., dict[str, Any]], recipe: object
) -> None:
    sample = ROOT / "samples" / "lichess.pgn.zst"
    one, two = (write([sample], tmp_path / str(jobs), recipe, jobs=jobs)["outputs"] for jobs in (1, 2))
    assert one == two


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_enough_ends_the_command(unbuffered: str) -> None:
    command = f"{sys.executable} -m chess_datasets sample --split heldout --count 5000 | head -1"
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["ply"] >= 0
