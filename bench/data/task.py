"""A measured piece of work in a process of its own: `python -m bench.data.task KIND FILE ...`, then JSON.

The clock runs from the first byte read to the last position written; imports are over by then, the start of
worker processes is not.
"""

import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import chess.pgn
from backports import zstd

from chess_datasets.pgn import native
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.pgn.tags import Filters
from chess_datasets.positions.dataset import write_positions
from chess_datasets.positions.recipe import PositionRecipe

GAMES = 0.01
POSITIONS = 20_000
FILTERS = Filters(elo_min=1000)

_PYTHON_CHESS_GAMES = 400
_NATIVE_GAMES = 20_000
_BATCH = 500


def python_chess(path: str) -> dict[str, int]:
    """The obvious way: a loop of `chess.pgn.read_game`, which reads every move of every game."""
    with Path(path).open("rb") as file:
        text = io.TextIOWrapper(zstd.ZstdFile(file))
        games = list(islice(iter(lambda: chess.pgn.read_game(text), None), _PYTHON_CHESS_GAMES))
    size = sum(len(raw.data) for raw in islice(read_raw_games(path), len(games)))
    return {"bytes": size, "games": len(games)}


def native_parser(path: str) -> dict[str, int]:
    """The native parser on every game, as its authors use it: from strings, on one thread."""
    import rust_pgn_reader_python_binding as parser

    games = size = 0
    raws = islice(read_raw_games(path), _NATIVE_GAMES)
    while batch := list(islice(raws, _BATCH)):
        games += len(parser.parse_games_from_strings([raw.text for raw in batch], num_threads=1))
        size += sum(len(raw.data) for raw in batch)
    return {"bytes": size, "games": games}


def sample(path: str, jobs: int = 1, games: float = GAMES) -> dict[str, int]:
    """Positions drawn from the games that a filter passes, out of one in a hundred; written as Parquet."""
    recipe = PositionRecipe(count=POSITIONS, games=games, filters=FILTERS)
    with tempfile.TemporaryDirectory(prefix="bench-data-") as out:
        manifest = write_positions([path], out, recipe, jobs=jobs)
    found = manifest["games"]
    return {"games": found["seen"], "read": found["read"], "positions": manifest["positions"]}


def sample_without_native(path: str, jobs: int = 1) -> dict[str, int]:
    """The same where python-chess reads the games that are chosen."""
    native.AVAILABLE = False
    return sample(path, jobs)


TASKS: dict[str, Callable[..., dict[str, int]]] = {
    task.__name__: task for task in (python_chess, native_parser, sample, sample_without_native)
}


def _cpu_s() -> float:
    """Of this process and those it started and saw end."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Does what the command line names."""
    kind, path, *numbers = sys.argv[1:]
    started, cpu_s = time.perf_counter(), _cpu_s()
    result: dict[str, float] = dict(TASKS[kind](path, *map(int, numbers)))
    result["seconds"] = time.perf_counter() - started
    result["cpu_s"] = _cpu_s() - cpu_s
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
