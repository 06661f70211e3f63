"""Searches that wait for an engine of the pool: one queue for each request, so that requests take turns."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rookery.engines.engine import Engine
from rookery.errors import EngineFault, RookeryError
from rookery.uci import Analysis, Query


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one engine in the pool; empty while the engine restarts."""

    number: int
    engine: Engine | None = None
    faults: int = 0
    failing: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether its engine searches."""
        return self.engine is not None and self.engine.searches > 0


@dataclass(slots=True, eq=False)
class Job:
    """A search with callers waiting for it: first queued, then running in the engine of `slot`."""

    query: Query
    since: float
    settle: "Callable[[Job, Analysis | EngineFault | None], None]"
    """Called with the engine's answer."""
    waiters: "list[tuple[Call, int]]" = field(default_factory=list)
    slot: Slot | None = None

    def done(self, result: Analysis | EngineFault | None) -> None:
        """As `Search.done`."""
        self.settle(self, result)


@dataclass(slots=True, eq=False)
class Call:
    """A caller that waits for several searches. `done` resolves with the last of them."""

    results: list[Analysis | RookeryError]
    done: asyncio.Future[None]
    missing: int = 0
    jobs: list[Job] = field(default_factory=list)

    def set_result(self, place: int, result: Analysis | RookeryError) -> None:
        """The result of the search in `place`."""
        self.results[place] = result
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)


Answer: TypeAlias = (
    "Callable[[Sequence[Query], RequestQueue], Coroutine[Any, Any, list[Analysis | RookeryError]]]"
)
"""The pool's method that searches queries when it is the queue's turn."""


class RequestQueue:
    """The searches of one request. Queues with work take turns at the engines."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.jobs: deque[Job] = deque()

    async def search(self, query: Query) -> Analysis:
        """The engine's answer to `query`.

        Raises:
            Unavailable: the queue is full, or the search waited too long in it.
            Quarantined: the position has killed two engines.
            EngineFault: no engine can be started, or the engine answered nonsense.
        """
        (result,) = await self.search_all([query])
        if isinstance(result, Analysis):
            return result
        raise result

    async def search_all(self, queries: Sequence[Query]) -> list[Analysis | RookeryError]:
        """The answers to `queries` in their order, an error in the place of one that `search` would raise.

        Cancelling this call abandons all of them.
        """
        return await self._answer(queries, self)
