"""Answers remembered, and questions in flight asked only once.

Searches are deterministic, so an entry never grows stale; the least recently used goes first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rookery import metrics

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(slots=True)
class _Flight(Generic[Value]):
    task: asyncio.Future[Value]
    waiters: int = 0


class Cache(Generic[Key, Value]):
    """Remembers up to `size` results of `compute`. Failures are passed on and forgotten."""

    def __init__(self, compute: Callable[[Key], Awaitable[Value]], *, size: int) -> None:
        self._compute = compute
        self._size = size
        self._known: OrderedDict[Key, Value] = OrderedDict()
        self._flights: dict[Key, _Flight[Value]] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def get(self, key: Key) -> Value:
        """The value of `key`, computed once at a time; the work is cancelled when nobody waits for it."""
        if key in self._known:
            metrics.REWARD_CACHE.labels("hit").inc()
            self._known.move_to_end(key)
            return self._known[key]
        flight = self._flights.get(key)
        metrics.REWARD_CACHE.labels("joined" if flight else "miss").inc()
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._fill(key)))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()

    async def _fill(self, key: Key) -> Value:
        flight = self._flights[key]
        try:
            value = await self._compute(key)
        finally:
            self._forget(key, flight)
        self._known[key] = value
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return value

    def _forget(self, key: Key, flight: _Flight[Value]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
