"""Preference pairs of a toy that is easy to learn: moves of the a- to d-file are preferred to the others."""

import json
import random
from pathlib import Path

GOOD = [f"{file}2{file}{rank}" for file in "abcd" for rank in "34"]
BAD = [f"{file}2{file}{rank}" for file in "efgh" for rank in "34"]


def write_pairs(path: Path, *, count: int, seed: int = 0, games: int = 0) -> Path:
    """JSON lines with the columns of `rookery data pairs`."""
    rng = random.Random(seed)
    with path.open("w") as out:
        for number in range(count):
            board = "".join(rng.choice("PNBRQK.pnbrqk") for _ in range(64))
            row = {
                "prompt": [{"role": "user", "content": f"{board} - -"}],
                "chosen": [{"role": "assistant", "content": f"\\boxed{{{rng.choice(GOOD)}}}"}],
                "rejected": [{"role": "assistant", "content": f"\\boxed{{{rng.choice(BAD)}}}"}],
                "fen": f"{board} w - - 0 {number}",
                "game_id": f"game {number % games}" if games else "",
                "gap": round(rng.uniform(0.05, 0.6), 3),
                "origin": "sampled",
                "phase": "middlegame",
            }
            out.write(json.dumps(row) + "\n")
    return path
