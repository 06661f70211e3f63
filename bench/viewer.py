"""Measures the viewer on a large archive: every interaction of the page, over HTTP, from click to JSON.

    python -m bench.viewer --traces 1000000

The archive is synthetic, written by the archiver's own writer: real positions, moves of a seeded player,
token ids and log-probabilities of the usual length. There is no peer to compare with. The limit is 200 ms,
at which a person begins to wait.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess
import httpx

from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from rookery.config.viewer import ViewerSettings
from rookery.trace import (
    Completion,
    Message,
    Move,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    Prompt,
    Sampling,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)
from services.viewer.app import create_app

GROUP_SIZE, FILE_GROUPS, BATCH = 8, 1024, 32
START_MS = 1763721014000
LIMIT_MS = 200.0

INTERACTIONS = {
    "first page, newest first": "groups",
    "page 500": "groups?page=500",
    "sort by surprise": "groups?sort=surprise",
    "sort by component": "groups?sort=component&component=delta",
    "sort by reward, page 50": "groups?sort=reward&descending=false&page=50",
    "illegal moves": "groups?outcome=illegal",
    "endgames of versions 100 to 200, regret above 0.5": (
        "groups?phase=endgame&version_min=100&version_max=200&regret_min=0.5&sort=regret"
    ),
    "a bar of the histogram": "groups?reward_min=-0.4&reward_max=-0.38",
    "search for text": "groups?text=Qxg7",
    "search for text that is nowhere": "groups?text=zugzwang",
    "histogram": "summary",
    "histogram of illegal moves": "summary?outcome=illegal",
    "component": "groups?component=delta&component_max=-0.9",
    "signs of collapse": "collapse",
}


def groups(count: int, rng: random.Random) -> Iterator[TraceGroup]:
    """Groups on positions of random games, in the order of a run."""
    boards = list(_boards(4000, rng))
    for number in range(count):
        board = rng.choice(boards)
        version = number // BATCH
        moves = [(move.uci(), board.san(move)) for move in board.legal_moves]
        yield TraceGroup(
            id=f"{rng.getrandbits(80):020x}",
            run="large",
            position=Position(f"bench:0:{number}", board.fen(), board.ply(), rng.choice(list(Phase)), "game"),
            prompt=Prompt("fen", (Message("user", board.fen()),), board.fen()),
            prompt_token_ids=tuple(range(60)),
            policy=PolicyVersion(version, f"{version:064x}"),
            base_model="bench",
            sampling=Sampling(),
            traces=tuple(_trace(f"{number}-{i}", moves, rng) for i in range(GROUP_SIZE)),
            created_at=START_MS / 1000 + number,
        )


def _trace(id: str, moves: list[tuple[str, str]], rng: random.Random) -> Trace:
    named = [rng.choice(moves) for _ in range(4)]
    uci, san = named[-1]
    text = f"<think>{' '.join(name for _, name in named)}</think>\\boxed{{{san}}}"
    length = rng.randrange(12, 24)
    completion = Completion(
        text,
        tuple(range(length)),
        tuple(-rng.expovariate(1.0) for _ in range(length)),
        "stop",
        rng.getrandbits(48),
    )
    if rng.random() < 0.1:
        return Trace(
            id, (Turn(completion, Verdict(-1.2, Outcome.ILLEGAL, "bench-1", components={"penalty": -1.2})),)
        )
    regret = min(1.0, rng.expovariate(5.0))
    verdict = Verdict(
        -regret,
        Outcome.LEGAL,
        "bench-1",
        Move(uci, san),
        Move(*moves[0]),
        0.5,
        0.5 - regret / 2,
        regret,
        components={"delta": -regret},
    )
    return Trace(id, (Turn(completion, verdict),))


def _boards(count: int, rng: random.Random) -> Iterator[chess.Board]:
    board = chess.Board()
    for _ in range(count):
        if board.is_game_over() or board.ply() > 100:
            board = chess.Board()
        board.push(rng.choice(list(board.legal_moves)))
        if not board.is_game_over():
            yield board.copy(stack=False)


def write_archive(folder: Path, traces: int, *, seed: int) -> None:
    """Writes the archive of a run `large` of so many traces, unless it is there."""
    archive, made = TraceArchive(open_folder(folder)), groups(traces // GROUP_SIZE, random.Random(seed))
    for start in range(0, traces // GROUP_SIZE, FILE_GROUPS):
        count = min(FILE_GROUPS, traces // GROUP_SIZE - start)
        entries = [f"{START_MS + start + n}-0" for n in range(count)]
        pairs = ((entry, next(made)) for entry in entries)
        archive.write("large", pairs, first=entries[0], last=entries[-1])


async def measure(runs: Path, scratch: Path, *, repeat: int) -> dict[str, Any]:
    """The time to index the run; for each interaction the median and longest time, and processor time, in ms.
    On a busy machine the clock says what the neighbours do, and processor time what the viewer does."""
    app = create_app(ViewerSettings(runs_dir=str(runs)), folder=scratch)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=600) as client:
        base, started = "/api/runs/large", time.perf_counter()
        while not await _indexed(client, base):
            pass
        indexed_s = time.perf_counter() - started
        newest = (await client.get(f"{base}/groups")).json()["groups"][0]["id"]
        times = {
            name: [await _asked(client, f"{base}/{path}") for _ in range(repeat)]
            for name, path in {**INTERACTIONS, "one group": f"groups/{newest}"}.items()
        }
    rows = {
        name: {
            "median_ms": round(statistics.median(wall for wall, _ in each), 1),
            "longest_ms": round(max(wall for wall, _ in each), 1),
            "processor_ms": round(statistics.median(processor for _, processor in each), 1),
        }
        for name, each in times.items()
    }
    return {"indexed_s": round(indexed_s, 1), "interactions": rows}


async def _indexed(client: httpx.AsyncClient, base: str) -> bool:
    await asyncio.sleep(0.5)
    state = (await client.get(base)).json()["indexed"]
    return bool(state["files"] == state["of"] > 0)


async def _asked(client: httpx.AsyncClient, path: str) -> tuple[float, float]:
    started, used = time.perf_counter(), time.process_time()
    (await client.get(path)).raise_for_status()
    return (time.perf_counter() - started) * 1000, (time.process_time() - used) * 1000


def main() -> None:
    """Prints the figures as JSON; the exit status is 1 if the median of an interaction is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the archive here (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if not (folder / "large").exists():
            write_archive(folder / "large" / "archive", options.traces, seed=options.seed)
        figures = asyncio.run(measure(folder, Path(scratch), repeat=options.repeat))
    print(json.dumps(figures, indent=2))
    slow = [name for name, row in figures["interactions"].items() if row["median_ms"] > LIMIT_MS]
    raise SystemExit(f"over {LIMIT_MS} ms: {', '.join(slow)}" if slow else 0)


if __name__ == "__main__":
    main()
