"""`python -m bench.data`: positions drawn from a dump, beside the obvious way and the limit.

The work: of one game in a hundred, those that a filter passes are read and give positions of every phase,
distinct ones, as Parquet with a manifest. The obvious way is a loop of python-chess's `read_game`; a native
parser alone, on every game, is the next better one; the limit is `zstd -dc`, which does nothing but
decompress. Every piece of work runs in a process of its own, in turn, round by round; of each the best round
counts, by the clock and by processor time, which strangers on the machine disturb less.

The dumps are synthetic: real moves, invented tags and clocks, in frames as Lichess's `pzstd` writes them.
Besides the large one with clocks there is one of each other kind of file: rated games without comments,
masters' short games in lines of 80 columns. `--file` measures other games instead, repeated to the size.
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

TARGET_PYTHON_CHESS = 100.0
TARGET_LIMIT = 0.3
"""Of `zstd -dc`, for games with clocks: games without comments have fewer bytes a move."""
TARGET_MB = 300.0

FILE_BYTES = 250_000_000

_TASK = [sys.executable, "-m", "bench.data.task"]


def main() -> int:
    options = _arguments()
    with tempfile.TemporaryDirectory(prefix="bench-data-", dir=options.folder) as folder:
        kinds, size = _kinds(Path(folder), options)
        tasks = _beside_zstd(kinds)
        if not options.kinds:
            dumps, more = _dumps(Path(folder), options.games, options.copies)
            tasks, size = _tasks(dumps, options.jobs) | tasks, more | size
        rounds = [{name: _run(argv) for name, argv in tasks.items()} for _ in range(options.rounds)]
    found = report(rounds, size, options.jobs)
    print(json.dumps(found, indent=2))
    return 0 if all(target["met"] for target in found["targets"].values()) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=100_000, help="of the smaller dump, 2.4 kB each")
    parser.add_argument("--copies", type=int, default=10, help="times so many has the larger one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, where several")
    parser.add_argument("--kinds", action="store_true", help="only files of every kind, beside zstd -dc")
    parser.add_argument(
        "--file", type=Path, nargs="+", default=(), help="games to repeat, a kind of their own"
    )
    parser.add_argument("--folder", type=Path, help="for the dumps, about 0.8 GB (the temporary folder)")
    return parser.parse_args()


def _dumps(folder: Path, games: int, copies: int) -> tuple[dict[str, str], dict[str, float]]:
    small, large = (folder / f"{name}.pgn.zst" for name in ("small", "large"))
    size = {
        "small": write_dump(small, GAMES, count=games, copies=1, framed=True),
        "large": write_dump(large, GAMES, count=games, copies=copies, framed=True),
    }
    paths = {"small": str(small), "large": str(large)}
    return paths, {name: text / MB for name, text in size.items()} | {
        "compressed_to": round(size["large"] / large.stat().st_size, 2)
    }


def _kinds(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Path], dict[str, float]]:
    """A dump of each kind in one frame, and of each file that is named; with their sizes."""
    paths, size = {}, {}
    for kind in Kind:
        paths[kind.value] = path = folder / f"{kind}.pgn.zst"
        size[kind.value] = (
            write_dump(path, GAMES, count=options.games, copies=3, framed=False, kind=kind) / MB
        )
    for file in options.file:
        paths[name := file.name.partition(".")[0]] = path = folder / f"file-{file.name}.zst"
        size[name] = write_again(path, file, size=FILE_BYTES) / MB
    ratios = {f"{name} compressed_to": size[name] * MB / path.stat().st_size for name, path in paths.items()}
    return paths, size | ratios


def _beside_zstd(dumps: dict[str, Path]) -> dict[str, list[str]]:
    return {
        f"{what} {name}": [*argv, str(path)]
        for name, path in dumps.items()
        for what, argv in (("zstd -dc", ["zstd", "-dcq"]), ("sample", [*_TASK, "sample"]))
    }


def _tasks(dumps: dict[str, str], jobs: int) -> dict[str, list[str]]:
    """Command lines by name; the name ends in the dump that is read."""
    task = _TASK
    return {
        "zstd -dc large": ["zstd", "-dcq", dumps["large"]],
        "sample large": [*task, "sample", dumps["large"]],
        f"sample, {jobs} processes large": [*task, "sample", dumps["large"], str(jobs)],
        "sample small": [*task, "sample", dumps["small"]],
        "sample without the native parser large": [*task, "sample_without_native", dumps["large"]],
        "python-chess read_game small": [*task, "python_chess", dumps["small"]],
        "native parser small": [*task, "native_parser", dumps["small"]],
    }


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


def report(rounds: list[dict[str, dict[str, float]]], size: dict[str, float], jobs: int) -> dict[str, Any]:
    """The best of all rounds, its ratio to `zstd -dc` for each dump, and the targets."""
    best = {name: _best([turn[name] for turn in rounds], name, size) for name in rounds[0]}
    several = f"sample, {jobs} processes large"
    dumps = [task.removeprefix("zstd -dc ") for task in best if task.startswith("zstd -dc ")]
    targets = {
        "one process, clocks, to zstd -dc": _target(best, "sample clocks", "zstd -dc clocks", TARGET_LIMIT)
    }
    if several in best:
        targets |= {
            "one process, to python-chess": _target(
                best, "sample large", "python-chess read_game small", TARGET_PYTHON_CHESS
            ),
            f"{jobs} processes, to zstd -dc": _target(best, several, "zstd -dc large", TARGET_LIMIT),
            "memory, MB": _memory(best, several),
        }
    return {
        "dump_MB": {name: round(value, 2) for name, value in size.items()},
        "cores": os.cpu_count(),
        "best_of_rounds": best,
        "one_process_to_zstd": {name: _ratio(best, f"sample {name}", f"zstd -dc {name}") for name in dumps},
        "targets": targets,
    }


def _best(turns: list[dict[str, float]], name: str, size: dict[str, float]) -> dict[str, float]:
    """Of each figure the best, as strangers on the machine only make it worse."""
    figures = {
        "MB_per_s": max(_mb(turn, name, size) / turn["seconds"] for turn in turns),
        "MB_per_cpu_s": max(_mb(turn, name, size) / turn["cpu_s"] for turn in turns),
        "games_per_s": max(turn.get("games", 0) / turn["seconds"] for turn in turns),
        "positions_per_s": max(turn.get("positions", 0) / turn["seconds"] for turn in turns),
        "peak_MB": max(turn["peak_mb"] for turn in turns),
    }
    return {figure: round(value, 1) for figure, value in figures.items() if value}


def _mb(turn: dict[str, float], name: str, size: dict[str, float]) -> float:
    """Text that was worked through: all of the dump, or what a task that reads a part tells."""
    return turn["bytes"] / MB if "bytes" in turn else size[name.rpartition(" ")[2]]


def _ratio(best: dict[str, Any], ours: str, other: str) -> dict[str, float]:
    units = {"by_clock": "MB_per_s", "by_cpu": "MB_per_cpu_s"}
    return {name: round(best[ours][unit] / best[other][unit], 3) for name, unit in units.items()}


def _target(best: dict[str, Any], ours: str, other: str, least: float) -> dict[str, Any]:
    ratio = _ratio(best, ours, other)
    return {**ratio, "target": least, "met": ratio["by_clock"] >= least}


def _memory(best: dict[str, Any], several: str) -> dict[str, Any]:
    peaks = {name: best[name]["peak_MB"] for name in ("sample small", "sample large", several)}
    return {**peaks, "target": TARGET_MB, "met": max(peaks.values()) < TARGET_MB}


if __name__ == "__main__":
    sys.exit(main())
