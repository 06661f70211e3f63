"""The measured work in a process of its own: `python -m bench.data.task FILE`, then JSON.

The clock runs from the first byte read to the last position written; imports are over by then.
"""

import json
import os
import sys
import tempfile
import time

from services.data.pgn.tags import Filters
from services.data.positions.dataset import write_positions
from services.data.positions.recipe import PositionRecipe

RECIPE = PositionRecipe(count=20_000, games=0.01, filters=Filters(elo_min=1000))
"""Positions of the games that a filter passes, out of one in a hundred."""


def _cpu_s() -> float:
    """Of this process and those it started and saw end."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Draws positions from the file on the command line and writes them as Parquet."""
    started, cpu_s = time.perf_counter(), _cpu_s()
    with tempfile.TemporaryDirectory(prefix="bench-data-") as out:
        manifest = write_positions([sys.argv[1]], out, RECIPE, jobs=1)
        seconds, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_s
    figures = {"games": manifest["games"]["seen"], "positions": manifest["positions"]}
    json.dump({**figures, "seconds": seconds, "cpu_s": cpu_s}, sys.stdout)


if __name__ == "__main__":
    main()
