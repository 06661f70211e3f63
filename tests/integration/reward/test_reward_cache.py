"""Analyses are made once, kept, and the least recently used go first."""

from pathlib import Path

import chess
import pytest

from rookery import metrics
from rookery.engines import EnginePool
from rookery.uci import Query
from services.reward.cache import AnalysisCache

pytestmark = pytest.mark.stockfish

MOVES = [move.uci() for move in chess.Board().legal_moves]
QUERIES = [Query(f"{chess.STARTING_FEN[:-4]} 0 1", 300, move) for move in MOVES]


async def test_what_was_searched_is_not_searched_again(stockfish_path: str) -> None:
    cache = AnalysisCache(engine="e", size=10)
    async with EnginePool(Path(stockfish_path), engines=1, hash_mb=1, queue=99, deadline_s=60.0) as pool:
        first = await cache.find_all([*QUERIES[:6], QUERIES[0]], pool.queue())
        nodes = metrics.ENGINE_NODES._value.get()
        again = await cache.find_all(QUERIES[:6], pool.queue())
        assert again == first[:6]
        assert first[6] == first[0]
        assert metrics.ENGINE_NODES._value.get() == nodes
        await cache.find_all([QUERIES[0], *QUERIES[6:14]], pool.queue())
        assert len(cache) == 10
        assert cache.get(QUERIES[0]) is not None
        assert cache.get(QUERIES[1]) is None
