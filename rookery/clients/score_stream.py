"""Scores many groups at once, each with a call of its own, with bounded memory.

How a group is scored, and how often it is tried, is up to the caller (see `rookery.clients.reward`).
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from typing import Any, Generic, Protocol, TypeVar

from rookery.errors import RookeryError
from rookery.trace import ScoreItem, Verdict

Key = TypeVar("Key")
Groups = Iterable[tuple[Key, Sequence[ScoreItem]]] | AsyncIterable[tuple[Key, Sequence[ScoreItem]]]
Slots = list[Verdict | RookeryError]


class GroupScorer(Protocol):
    """Scores the answers of many groups: a `RewardClient`, or one object for several of them."""

    def stream(
        self, groups: Groups[Key], *, scheme: str = "", items: int = 2048
    ) -> AsyncGenerator[tuple[Key, list[Verdict | RookeryError]]]:
        """Yields each key with the verdicts or errors of its items, in any order."""


class ScoreStream(Generic[Key]):
    """Scores groups once with `score`, with at most `limit` items in flight or not yet yielded."""

    def __init__(self, score: Callable[[Sequence[ScoreItem]], Awaitable[Slots]], *, limit: int) -> None:
        self._score, self._limit = score, limit
        self._tasks: set[asyncio.Task[tuple[Key, Slots] | None]] = set()
        self._done: asyncio.Queue[asyncio.Task[tuple[Key, Slots] | None]] = asyncio.Queue()
        self._items = 0
        self._room = asyncio.Event()

    async def run(self, groups: Groups[Key]) -> AsyncGenerator[tuple[Key, Slots]]:
        """Yields each key with the results of its items, as they arrive."""
        self._start(self._start_groups(groups))
        try:
            while self._tasks:
                task = await self._done.get()
                self._tasks.remove(task)
                if (scored := task.result()) is not None:
                    self._items -= _size(scored[1])
                    self._room.set()
                    yield scored
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, tuple[Key, Slots] | None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done.put_nowait)

    async def _start_groups(self, groups: Groups[Key]) -> None:
        async for key, items in each(groups):
            while self._items and self._items + _size(items) > self._limit:
                self._room.clear()
                await self._room.wait()
            self._items += _size(items)
            self._start(self._score_group(key, items))

    async def _score_group(self, key: Key, items: Sequence[ScoreItem]) -> tuple[Key, Slots]:
        return key, await self._score(items)


def _size(items: Sequence[object]) -> int:
    return max(1, len(items))  # an empty group is yielded too, so it counts as one item


async def each(groups: Groups[Key]) -> AsyncIterator[tuple[Key, Sequence[ScoreItem]]]:
    """The groups, whether they are made asynchronously or not."""
    if isinstance(groups, AsyncIterable):
        async for group in groups:
            yield group
    else:
        for group in groups:
            yield group
