"""Searches that wait for an engine of the pool: one queue for each request, so that requests take turns.

Positions over which engines died are not searched again: `Engine` decides whether a crash is due to its
position, and the pool handles the searches that were lost.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rookery import metrics
from rookery.engines.engine import Engine
from rookery.errors import EngineFault, Quarantined, RookeryError
from rookery.uci import Analysis, Query

MAX_CRASHES = 2
"""A position is refused after this many engines died over it."""

QUARANTINE_S = 3600.0
"""How long crashes count against a position. They are forgotten, as engines also die for other reasons."""

_POSITIONS = 1024


@dataclass(frozen=True, slots=True)
class _Record:
    crashes: int
    since: float
    """When the last crash happened."""
    last: str


class Quarantine:
    """Counts crashes by position. Of more than `_POSITIONS` positions, the oldest is forgotten."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def refusal(self, fen: str) -> Quarantined | None:
        """The error for a refused position, or None if `fen` may be searched."""
        record = self._records.get(fen)
        if record is None or record.crashes < MAX_CRASHES or time.monotonic() - record.since > QUARANTINE_S:
            return None
        return Quarantined(f"{record.crashes} engines died over {fen!r}, the last time: {record.last}")

    def count(self, fen: str, fault: EngineFault) -> None:
        """Records that an engine died while it searched `fen`."""
        now = time.monotonic()
        record = self._records.pop(fen, None)
        crashes = record.crashes if record and now - record.since < QUARANTINE_S else 0
        self._records[fen] = _Record(crashes + 1, now, str(fault))
        if len(self._records) > _POSITIONS:
            self._records.popitem(last=False)
        if crashes + 1 == MAX_CRASHES:
            metrics.POSITIONS_QUARANTINED.inc()


@dataclass(slots=True, eq=False)
class EngineSlot:
    """The place of one engine in the pool; empty while the engine restarts."""

    number: int
    engine: Engine | None = None
    faults: int = 0
    failing: bool = False

    @property
    def is_busy(self) -> bool:
        return self.engine is not None and self.engine.searches > 0


@dataclass(slots=True, eq=False)
class Job:
    """A search with callers waiting for it: first queued, then running in the engine of `slot`."""

    query: Query
    since: float
    settle: "Callable[[Job, Analysis | EngineFault | None], None]"
    """Called with the engine's answer."""
    waiters: "list[tuple[Call, int]]" = field(default_factory=list)
    slot: EngineSlot | None = None

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
    """The searches of one request. Queues with work take turns at the engines.

    `many_moves` is held while many moves of a position are searched: by so few positions at once that no
    request fills the pool's queue.
    """

    def __init__(self, answer: Answer, *, positions: int = 1) -> None:
        self._answer = answer
        self.many_moves = asyncio.Semaphore(positions)
        self.jobs: deque[Job] = deque()

    async def search(self, query: Query) -> Analysis:
        """The engine's answer to `query`. Raises `Unavailable` if the queue is full, or the search waited too
        long in it; `Quarantined` if the position has killed two engines; `EngineFault` if no engine can be
        started, or the engine answered nonsense."""
        (result,) = await self.search_all([query])
        if isinstance(result, Analysis):
            return result
        raise result

    async def search_all(self, queries: Sequence[Query]) -> list[Analysis | RookeryError]:
        """The answers to `queries` in their order, an error in the place of one that `search` would raise.
        Cancelling this call abandons all of them."""
        return await self._answer(queries, self)
