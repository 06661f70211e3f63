"""A search on its way: who waits for it, and the place of the engine that makes it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from rookery.engines.engine import Engine
from rookery.errors import EngineFault, RookeryError
from rookery.uci import Analysis, Query


@dataclass(slots=True, eq=False)
class Slot:
    """Where an engine works; empty while it is started again."""

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
    """A search that somebody waits for: first queued, then in the engine of `slot`."""

    query: Query
    since: float
    settle: "Callable[[Job, Analysis | EngineFault | None], None]"
    """What becomes of an engine's answer."""
    waiters: "list[tuple[Call, int]]" = field(default_factory=list)
    slot: Slot | None = None

    def done(self, result: Analysis | EngineFault | None) -> None:
        """As `Search.done`."""
        self.settle(self, result)


@dataclass(slots=True, eq=False)
class Call:
    """Somebody who waits for several searches; `done` when the last of them is."""

    results: list[Analysis | RookeryError]
    done: asyncio.Future[None]
    missing: int = 0
    jobs: list[Job] = field(default_factory=list)

    def take(self, place: int, result: Analysis | RookeryError) -> None:
        """The result of the search in `place`."""
        self.results[place] = result
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)
