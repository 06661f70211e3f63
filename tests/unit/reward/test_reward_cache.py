"""The cache computes once, forgets failures, and lets abandoned work go."""

import asyncio

import pytest

from services.reward.cache import Cache


class Computer:
    """Squares numbers when told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.cancelled = 0
        self.go = asyncio.Event()

    async def __call__(self, key: int) -> int:
        self.asked.append(key)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if key < 0:
            raise ValueError(key)
        return key * key


async def test_questions_in_flight_are_asked_once() -> None:
    computer = Computer()
    cache: Cache[int, int] = Cache(computer, size=10)
    waiting = [asyncio.create_task(cache.get(3)) for _ in range(5)]
    await asyncio.sleep(0)
    computer.go.set()
    assert await asyncio.gather(*waiting) == [9] * 5
    assert await cache.get(3) == 9
    assert computer.asked == [3]


async def test_the_least_recently_used_goes_first() -> None:
    computer = Computer()
    computer.go.set()
    cache: Cache[int, int] = Cache(computer, size=2)
    for key in (1, 2, 1, 3, 1, 2):
        await cache.get(key)
    assert computer.asked == [1, 2, 3, 2]
    assert len(cache) == 2


async def test_failures_are_passed_on_and_forgotten() -> None:
    computer = Computer()
    computer.go.set()
    cache: Cache[int, int] = Cache(computer, size=2)
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            await cache.get(-1)
    assert computer.asked == [-1, -1]


async def test_work_ends_when_the_last_waiter_leaves() -> None:
    computer = Computer()
    cache: Cache[int, int] = Cache(computer, size=2)
    first, second = (asyncio.create_task(cache.get(2)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert computer.cancelled == 0
    second.cancel()
    await asyncio.sleep(0.01)
    assert computer.cancelled == 1
    computer.go.set()
    assert await cache.get(2) == 4
