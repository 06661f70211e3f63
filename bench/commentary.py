"""`python -m bench.commentary`: texts read a second, beside searches of Stockfish of 1,000 nodes.

A reward that reads what a policy wrote must not cost more than the search that judges its move. One core
reads, and one engine searches, the same positions of games: own texts of all lengths, and the same texts with
every word that no template knows.
"""

import argparse
import asyncio
import json
import sys
import time
from itertools import islice
from pathlib import Path

from commentary import LENGTHS, VOICES, Study, read, write
from rookery.engines import EnginePool, find_engine
from rookery.uci import Query
from services.data.annotate.study import Effort, study
from services.data.pgn.collection import GameCollection
from services.data.pgn.sources import SAMPLE, find_sources
from services.data.positions.numbered import PositionOrder
from services.data.positions.recipe import Shares

NODES = 1000
TARGET = 0.1
"""Texts a second, in searches a second: ten times a search is the most that reading may take."""


def main() -> int:
    """Prints the rates and returns the exit status: 0 if reading is fast enough."""
    parser = argparse.ArgumentParser(prog="python -m bench.commentary", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="positions")
    options = parser.parse_args()
    result = asyncio.run(_measure(options.count))
    sys.stdout.write(json.dumps(result) + "\n")
    return 0 if result["share"] >= TARGET else 1


async def _measure(count: int) -> dict[str, float]:
    games = GameCollection(find_sources([SAMPLE]))
    fens = [
        p.fen for p in islice(PositionOrder(games, shares=Shares(), split="train").distinct(seed=0), count)
    ]
    games.close()
    path = find_engine(None, setting="--engine")
    pool = EnginePool(Path(path), engines=1, hash_mb=16, queue=256, deadline_s=60)
    try:
        await pool.start()
        studies = [await study(fen, pool, Effort.of(2000, lines=3)) for fen in fens]
        begin = time.perf_counter()
        for fen in fens:
            await pool.search(Query(fen, NODES))
        searches = count / (time.perf_counter() - begin)
    finally:
        await pool.close()
    texts = [(found, _text(found, number)) for number, found in enumerate(studies)]
    known, strange = _rate(texts), _rate([(found, text.replace(" ", " quite ")) for found, text in texts])
    return {
        "texts_per_s": round(known, 1),
        "unknown_texts_per_s": round(strange, 1),
        "searches_per_s": round(searches, 1),
        "share": round(min(known, strange) / searches, 3),
    }


def _text(found: Study, number: int) -> str:
    voice, length = sorted(VOICES)[number % len(VOICES)], tuple(LENGTHS)[number % len(LENGTHS)]
    return str(write(found, voice=voice, length=length, seed=str(number)))


def _rate(texts: list[tuple[Study, str]]) -> float:
    begin = time.perf_counter()
    for found, text in texts:
        read(found, text)
    return len(texts) / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(main())
