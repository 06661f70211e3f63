"""The engines of this replica and the bounded queue before them.

Each engine has a worker that keeps it alive: a search that kills its engine fails alone, the engine is
started again with back-off, and the others go on. Nothing here knows chess.
"""

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Self

from rookery import metrics
from rookery.errors import EngineFault, Unavailable
from services.reward.engine import Analysis, Engine, Query

logger = logging.getLogger(__name__)

BACKOFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)
"""Pauses before an engine is started again, by the faults since its last answer; the last one repeats."""

MAX_WAIT_S = 60.0
"""How long a search may wait for an engine before its caller is told to come back."""


_STOPS = "the reward service stops"


@dataclass(frozen=True, slots=True)
class _Job:
    query: Query
    answer: asyncio.Future[Analysis]
    since: float


class EnginePool:
    """`engines` Stockfish processes behind a queue of at most `queue` searches."""

    def __init__(self, path: Path, *, engines: int, hash_mb: int, queue: int, deadline_s: float) -> None:
        self._path = path
        self._count = engines
        self._hash_mb = hash_mb
        self._limit = queue
        self._deadline_s = deadline_s
        self._waiting: deque[_Job] = deque()
        self._work = asyncio.Semaphore(0)
        self._engines: dict[int, Engine] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._failing: set[int] = set()  # slots whose engine did not even start again
        self._stopped = False
        self._mean_s = 0.005
        self.engine_id = ""

    async def start(self) -> Self:
        """Starts the engines, all at once.

        Raises:
            EngineFault: one of them does not start.
        """
        try:
            started = await asyncio.gather(*(self._start_engine() for _ in range(self._count)))
        except EngineFault:
            await self.close()
            raise
        self.engine_id = started[0].name
        self._engines = dict(enumerate(started))
        self._workers = [asyncio.create_task(self._serve(slot)) for slot in self._engines]
        metrics.ENGINES_TOTAL.set(self._count)
        return self

    async def search(self, query: Query) -> Analysis:
        """The engine's answer to `query`.

        Raises:
            Unavailable: the queue is full, or the search waited too long in it.
            EngineFault: the engine died or hung over it, or no engine can be started.
        """
        if self._stopped:
            raise Unavailable(_STOPS)
        if not self.ready:
            raise EngineFault(f"none of {self._count} engines can be started")
        if len(self._waiting) >= self._limit:
            raise self._busy(f"{len(self._waiting)} searches wait for {self._count} engines")
        job = _Job(query, asyncio.get_running_loop().create_future(), time.monotonic())
        self._waiting.append(job)
        metrics.REWARD_QUEUE.set(len(self._waiting))
        self._work.release()
        return await job.answer

    @property
    def ready(self) -> bool:
        """Whether a search has a chance."""
        return not self._stopped and len(self._failing) < self._count

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the engines."""
        return tuple(engine.pid for engine in self._engines.values())

    async def close(self) -> None:
        """Ends the engines; searches that still wait fail."""
        self._stopped = True
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._fail_waiting(Unavailable(_STOPS))
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))
        self._engines.clear()

    def _busy(self, why: str) -> Unavailable:
        error = Unavailable(why)
        error.retry_after_s = max(1.0, len(self._waiting) * self._mean_s / self._count)
        return error

    async def _serve(self, slot: int) -> None:
        faults = 0
        while True:
            job = await self._next_job()
            try:
                analysis = await self._timed(await self._live_engine(slot), job.query)
            except EngineFault as fault:
                logger.error("engine %d: %s at %s", slot, fault, job.query)
                _fail(job, fault)
                await self._revive(slot, faults)
                faults += 1
            except asyncio.CancelledError:
                _fail(job, Unavailable(_STOPS))
                raise
            else:
                faults = 0
                if not job.answer.done():
                    job.answer.set_result(analysis)

    async def _next_job(self) -> _Job:
        while True:
            await self._work.acquire()
            job = self._waiting.popleft()
            metrics.REWARD_QUEUE.set(len(self._waiting))
            if job.answer.done():  # its caller has gone
                continue
            waited_s = time.monotonic() - job.since
            if waited_s <= MAX_WAIT_S:
                return job
            _fail(job, self._busy(f"no engine was free for {waited_s:.0f} s"))

    async def _timed(self, engine: Engine, query: Query) -> Analysis:
        begin = time.perf_counter()
        with metrics.ENGINES_BUSY.track_inprogress():
            analysis = await engine.search(query, timeout_s=self._deadline_s)
        self._mean_s += 0.05 * (time.perf_counter() - begin - self._mean_s)
        metrics.ENGINE_NODES.inc(analysis.nodes)
        return analysis

    async def _live_engine(self, slot: int) -> Engine:
        if not self._engines[slot].alive:
            logger.warning("engine %d died idle", slot)
            await self._restart(slot, reason="died_idle")
        return self._engines[slot]

    async def _revive(self, slot: int, faults: int) -> None:
        """Starts an engine in `slot` again, however often that takes."""
        for pause_s in chain(BACKOFF_S[faults:], repeat(BACKOFF_S[-1])):
            await asyncio.sleep(pause_s)
            try:
                await self._restart(slot, reason="fault")
            except EngineFault as fault:
                logger.error("engine %d: %s", slot, fault)
                self._failing.add(slot)
                if not self.ready:
                    self._fail_waiting(fault)
            else:
                return

    async def _restart(self, slot: int, *, reason: str) -> None:
        await self._engines[slot].close()
        metrics.ENGINE_RESTARTS.labels(reason).inc()
        self._engines[slot] = engine = await self._start_engine()
        self._failing.discard(slot)
        logger.warning("engine %d started again as process %d", slot, engine.pid)

    def _fail_waiting(self, error: Unavailable) -> None:
        for job in self._waiting:
            _fail(job, error)

    async def _start_engine(self) -> Engine:
        engine = await Engine.start(self._path, hash_mb=self._hash_mb)
        if self.engine_id and engine.name != self.engine_id:
            await engine.close()
            raise EngineFault(
                f"the engine is now {engine.name!r}, not {self.engine_id!r}: restart the service"
            )
        return engine


def _fail(job: _Job, error: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)
