"""`python -m bench.data`: positions drawn from files of games of every kind, beside the limit.

The work: of one game in a hundred, those that a filter passes are read and give positions of every phase,
distinct ones, as Parquet with a manifest. The limit is `zstd -dc`, which does nothing but decompress. Every
piece of work runs in a process of its own, in turn, round by round; of each the best round counts, by the
clock and by processor time, which strangers on the machine disturb less.

The games are synthetic: real moves, invented tags and clocks. One file has clocks, as Lichess's dumps, one
rated games without comments, one masters' short games in lines of 80 columns. `--file` measures other games
too, repeated to the size.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from bench.data.dump import Kind, write_again, write_dump

GAMES = Path("samples/lichess.pgn.zst")
MB = 1e6
TARGET_LIMIT = 0.3
FILE_BYTES = 250_000_000


def main() -> int:
    """Measures, prints, and returns 1 if a target is missed."""
    options = _arguments()
    with tempfile.TemporaryDirectory(prefix="bench-data-", dir=options.folder) as folder:
        dumps, size = _dumps(Path(folder), options)
        tasks = {
            f"{what} {name}": [*argv, str(path)]
            for name, path in dumps.items()
            for what, argv in (
                ("zstd -dc", ["zstd", "-dcq"]),
                ("sample", [sys.executable, "-m", "bench.data.task"]),
            )
        }
        rounds = [{name: _run(argv) for name, argv in tasks.items()} for _ in range(options.rounds)]
    best = {name: _best([turn[name] for turn in rounds], size[name.rpartition(" ")[2]]) for name in rounds[0]}
    targets = {name: _target(best[f"sample {name}"], best[f"zstd -dc {name}"]) for name in dumps}
    report = {
        "dump_MB": {name: round(value, 2) for name, value in size.items()},
        "cores": os.cpu_count(),
        "best_of_rounds": best,
        "targets": {f"one process, {name}, to zstd -dc": target for name, target in targets.items()},
    }
    print(json.dumps(report, indent=2))
    return 0 if all(target["met"] for target in targets.values()) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=100_000, help="of a file, three times over")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--file", type=Path, nargs="+", default=(), help="games to repeat, a kind of their own"
    )
    parser.add_argument("--folder", type=Path, help="for the files of games (the temporary folder)")
    return parser.parse_args()


def _dumps(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Path], dict[str, float]]:
    """A dump of each kind, and of each file that is named; with their sizes."""
    paths, size = {}, {}
    for kind in Kind:
        paths[kind.value] = path = folder / f"{kind}.pgn.zst"
        size[kind.value] = write_dump(path, GAMES, count=options.games, copies=3, kind=kind) / MB
    for file in options.file:
        paths[name := file.name.partition(".")[0]] = path = folder / f"file-{file.name}.zst"
        size[name] = write_again(path, file, size=FILE_BYTES) / MB
    ratios = {f"{name} compressed_to": size[name] * MB / path.stat().st_size for name, path in paths.items()}
    return paths, size | ratios


def _run(argv: list[str]) -> dict[str, float]:
    """One task to its end; the most memory that it and its children had, pages they share counted once."""
    started = time.perf_counter()
    before = os.times()
    with subprocess.Popen(argv, stdout=subprocess.PIPE if "-m" in argv else subprocess.DEVNULL) as process:
        peak_mb = _peak_mb(process)
        said = process.stdout.read() if process.stdout else b""
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}")
    after = os.times()
    spent = {
        "seconds": time.perf_counter() - started,
        "cpu_s": after.children_user + after.children_system - before.children_user - before.children_system,
    }
    return spent | (json.loads(said) if said else {}) | {"peak_mb": peak_mb}


def _peak_mb(process: subprocess.Popen[bytes]) -> float:
    watched, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            family = [watched, *watched.children(recursive=True)]
            peak = max(peak, sum(member.memory_full_info().pss for member in family))
        time.sleep(0.02)
    return round(peak / MB, 1)


def _best(turns: list[dict[str, float]], mb: float) -> dict[str, float]:
    """Of each figure the best, as strangers on the machine only make it worse."""
    figures = {
        "MB_per_s": max(mb / turn["seconds"] for turn in turns),
        "MB_per_cpu_s": max(mb / turn["cpu_s"] for turn in turns),
        "games_per_s": max(turn.get("games", 0) / turn["seconds"] for turn in turns),
        "positions_per_s": max(turn.get("positions", 0) / turn["seconds"] for turn in turns),
        "peak_MB": max(turn["peak_mb"] for turn in turns),
    }
    return {figure: round(value, 1) for figure, value in figures.items() if value}


def _target(ours: dict[str, float], limit: dict[str, float]) -> dict[str, Any]:
    by_clock, by_cpu = (round(ours[unit] / limit[unit], 3) for unit in ("MB_per_s", "MB_per_cpu_s"))
    return {"by_clock": by_clock, "by_cpu": by_cpu, "target": TARGET_LIMIT, "met": by_clock >= TARGET_LIMIT}


if __name__ == "__main__":
    sys.exit(main())
