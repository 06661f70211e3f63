"""Replicas with one Redis search a position once between them, and believe nothing else they find there."""

from pathlib import Path

import pytest
import redis.asyncio

from rookery import metrics, shared_cache
from rookery.config.reward import RewardSettings
from rookery.errors import EngineFault
from rookery.trace import ScoreItem
from services.reward.scorer import Scorer

pytestmark = [pytest.mark.stockfish, pytest.mark.redis]

FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
ITEMS = [ScoreItem(FEN, rf"\boxed{{{move}}}") for move in ("Nxg5", "h3", "Bxg5", "a3", "Ke2", "nonsense")]


def searched() -> float:
    return metrics.ENGINE_NODES._value.get()


@pytest.fixture
def settings(stockfish_path: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> RewardSettings:
    monkeypatch.setattr(shared_cache, "LOOKUP_TIMEOUT_S", 30.0)  # on a busy machine, a slow answer is a miss
    monkeypatch.setattr(shared_cache, "REDIS_TIMEOUT_S", 30.0)
    monkeypatch.setattr(shared_cache, "_CLOSE_S", 30.0)
    return RewardSettings(engine_path=Path(stockfish_path), engines=1, nodes=700, redis_url=redis_url)


async def score(settings: RewardSettings, items: list[ScoreItem]) -> list[object]:
    async with await Scorer.start(settings) as scorer:  # closing it writes what is still to be written
        return await scorer.score_batch(items)


async def test_a_second_replica_searches_nothing(settings: RewardSettings) -> None:
    several_lines = ScoreItem(FEN, "M: f3g5 f1c4 b1c3 c1e3 h2h4 E: 7.4 2 2 2 2 B: f3g5", task="P")
    items = [*ITEMS, several_lines]
    alone = await score(settings.model_copy(update={"redis_url": ""}), items)
    first = await score(settings, items)
    before = searched()
    second = await score(settings, items)
    assert searched() == before
    assert alone == first == second


async def test_another_limit_is_another_question(settings: RewardSettings) -> None:
    await score(settings, ITEMS[:2])
    before = searched()
    await score(settings.model_copy(update={"nodes": 701}), ITEMS[:2])
    assert searched() > before


NONSENSE = (
    b"",
    b"\xff garbage",
    b"null",
    b"[]",
    b"[1,[]]",
    b'[1,[[9,9,null,"e1e2"]]]',
    b'[1,[[9,null,null,""]]]',
    b'[1,[[3,null,[1,2],"e2e4"]]]',
    b'[1,[["3",null,null,"e2e4"]]]',
    b'[1,[[NaN,null,null,"e2e4"]]]',
    b'[1,[[1.5,null,null,"e2e4"]]]',
    b'[1e999,[[3,null,null,"e2e4"]]]',
    b"[1,[[3,null,null,{}]]]",
    b"[" * 100_000,
)


async def test_what_no_replica_wrote_is_searched_again(settings: RewardSettings, redis_url: str) -> None:
    expected = await score(settings, ITEMS)
    for value in NONSENSE:
        await overwrite(redis_url, value)
        assert await score(settings, ITEMS) == expected, value[:40]


async def test_a_forged_best_move_is_a_fault_and_never_a_reward(
    settings: RewardSettings, redis_url: str
) -> None:
    await score(settings, ITEMS)
    await overwrite(redis_url, b'[1,[[9999,null,null,"a8a1"]]]')
    for result in (await score(settings, ITEMS))[:5]:
        assert isinstance(result, EngineFault)


async def overwrite(redis_url: str, value: bytes) -> None:
    client = redis.asyncio.Redis.from_url(redis_url)
    keys = [key async for key in client.scan_iter("rookery:reward:*")]
    assert len(keys) >= 4
    for key in keys:
        await client.set(key, value)
    await client.aclose()
