"""A pool of engines behind a bounded, fair queue.

Requests take turns, however many searches each of them has. Identical searches run once. A search whose
engine dies is retried once on another engine; if that dies too, the position is quarantined. Dead engines
restart with back-off while the others go on.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Self

from rookery import metrics
from rookery.engines.engine import Engine
from rookery.engines.fair_queue import Call, EngineSlot, Job, Quarantine, RequestQueue
from rookery.errors import EngineFault, RookeryError, Unavailable
from rookery.retries import pause_after
from rookery.uci import Analysis, Query

logger = logging.getLogger(__name__)

PAUSES_S = (0.0, 0.1, 0.5, 2.0, 5.0)
"""Pauses before an engine restarts, by its number of faults since its last answer; the last one repeats."""

MAX_WAIT_S = 60.0
"""How long a search may wait for an engine before its caller gets `Unavailable`."""

MAX_LEGAL_MOVES = 218
"""Most legal moves of a position: R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1 (N. Petrovic)."""

_STOPPING = "the engines are stopping"
_UNANSWERED = Unavailable("not answered yet")


class EnginePool:
    """`engines` Stockfish processes behind a queue of at most `queue` searches."""

    def __init__(self, path: Path, *, engines: int, hash_mb: int, queue: int, deadline_s: float) -> None:
        self._path = path
        self._hash_mb = hash_mb
        self._limit = queue
        self._deadline_s = deadline_s
        self._jobs: dict[Query, Job] = {}
        self._turns: deque[RequestQueue] = deque()
        self._queued = 0
        self._slots = [EngineSlot(number) for number in range(engines)]
        self._quarantine = Quarantine()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.engine_id = ""

    async def start(self) -> Self:
        """Starts the engines, all at once. Raises `EngineFault` if one of them does not start."""
        started = await asyncio.gather(*(self._start_engine() for _ in self._slots), return_exceptions=True)
        for slot, engine in zip(self._slots, started, strict=True):
            if isinstance(engine, Engine):
                self.engine_id = engine.name
                self._install(slot, engine)
        for fault in started:
            if isinstance(fault, BaseException):
                await self.close()
                raise fault
        self._spawn(self._watch())
        metrics.ENGINES_TOTAL.set(len(self._slots))
        metrics.ENGINES_BUSY.set_function(lambda: sum(slot.is_busy for slot in self._slots))
        metrics.REWARD_QUEUE.set_function(lambda: self._queued)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def queue(self) -> RequestQueue:
        """A new queue for the searches of one request."""
        return RequestQueue(self.answer, positions=max(1, self._limit // (2 * MAX_LEGAL_MOVES)))

    async def search(self, query: Query) -> Analysis:
        """Like `RequestQueue.search`, for a request with a single search."""
        return await RequestQueue(self.answer).search(query)

    async def answer(self, queries: Sequence[Query], queue: RequestQueue) -> list[Analysis | RookeryError]:
        """Implements `RequestQueue.search_all`."""
        call = Call([_UNANSWERED] * len(queries), asyncio.get_running_loop().create_future())
        for place, query in enumerate(queries):
            self._enqueue(query, queue, call, place)
        try:
            if call.missing:
                await call.done
        finally:
            if call.missing:
                self._abandon(call)
        return call.results

    @property
    def ready(self) -> bool:
        return not self._stopped and not all(slot.failing for slot in self._slots)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(slot.engine.pid for slot in self._slots if slot.engine)

    async def close(self) -> None:
        """Ends the engines; searches that still wait fail."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job in list(self._jobs.values()):
            self._finish(job, Unavailable(_STOPPING))
        await asyncio.gather(*(slot.engine.close() for slot in self._slots if slot.engine))

    # From request to engine.

    def _enqueue(self, query: Query, queue: RequestQueue, call: Call, place: int) -> None:
        job = self._jobs.get(query)
        if job is None:
            if (error := self._refusal(query)) is not None:
                call.results[place] = error
                return
            job = self._jobs[query] = Job(query, time.monotonic(), self._settle)
            self._queued += 1
        job.waiters.append((call, place))
        call.jobs.append(job)
        call.missing += 1
        if job.slot is None:  # also if it is in another queue: the queue whose turn comes first runs it
            if not queue.jobs:
                self._turns.append(queue)
            queue.jobs.append(job)
            self._dispatch()

    def _refusal(self, query: Query) -> RookeryError | None:
        if self._stopped:
            return Unavailable(_STOPPING)
        if not self.ready:
            return EngineFault(f"none of {len(self._slots)} engines can be started")
        if self._queued >= self._limit:
            why = f"{self._queued} searches wait for {len(self._slots)} engines"
            return self._overloaded(why, nodes=query.nodes)
        return self._quarantine.refusal(query.fen)

    def _abandon(self, call: Call) -> None:
        for job in call.jobs:
            job.waiters = [waiter for waiter in job.waiters if waiter[0] is not call]
            if job.waiters or self._jobs.get(job.query) is not job:
                continue
            del self._jobs[job.query]
            if job.slot is None:
                self._queued -= 1
            elif job.slot.engine is not None:
                job.slot.engine.abandon(job)

    def _dispatch(self) -> None:
        while self._queued and (slot := self._least_busy()) and (job := self._next_job()):
            if (refusal := self._quarantine.refusal(job.query.fen)) is not None:  # since it was queued
                self._finish(job, refusal)
                continue
            assert slot.engine is not None  # noqa: S101 -- `_least_busy` checks
            job.slot = slot
            slot.engine.submit(job)

    def _least_busy(self) -> EngineSlot | None:
        least, fewest = None, 0
        for slot in self._slots:
            if (engine := slot.engine) is None or not engine.has_room:
                continue
            if least is None or engine.searches < fewest:
                least, fewest = slot, engine.searches
        return least

    def _next_job(self) -> Job | None:
        while self._turns:
            queue = self._turns.popleft()
            job = queue.jobs.popleft()
            if queue.jobs:
                self._turns.append(queue)
            if self._jobs.get(job.query) is job and job.slot is None:
                self._queued -= 1
                metrics.REWARD_WAIT.observe(time.monotonic() - job.since)
                return job
        return None

    # From engine to request.

    def _settle(self, job: Job, result: Analysis | EngineFault | None) -> None:
        """Handles the engine's answer to `job`: see `Search.done`."""
        slot, job.slot = job.slot, None
        if isinstance(result, Analysis):
            metrics.ENGINE_NODES.inc(result.nodes)
            if slot is not None:
                slot.faults = 0
        elif result is not None and not self._stopped:  # also where nobody waits any more
            logger.error("%s", result)
            self._quarantine.count(job.query.fen, result)
        if self._jobs.get(job.query) is job:
            self._finish_or_requeue(job, result)
        self._dispatch()

    def _finish_or_requeue(self, job: Job, result: Analysis | EngineFault | None) -> None:
        """Answers the callers of `job`, or searches again if its engine died."""
        if isinstance(result, Analysis):
            self._finish(job, result)
        elif (refusal := self._quarantine.refusal(job.query.fen)) is not None:
            self._finish(job, refusal)
        else:
            self._requeue(job)

    def _finish(self, job: Job, result: Analysis | RookeryError) -> None:
        del self._jobs[job.query]
        for call, place in job.waiters:
            call.set_result(place, result)

    def _requeue(self, job: Job) -> None:
        """Puts `job` before all others: it has waited already."""
        queue = RequestQueue(self.answer)
        queue.jobs.append(job)
        self._turns.appendleft(queue)
        self._queued += 1

    # Engines that fail.

    def _install(self, slot: EngineSlot, engine: Engine) -> None:
        slot.engine, slot.failing = engine, False
        engine.died = lambda: self._on_death(slot, engine)
        if engine.ended:  # between its answer and now
            self._on_death(slot, engine)
        self._dispatch()

    def _on_death(self, slot: EngineSlot, engine: Engine) -> None:
        slot.engine = None
        if not self._stopped:
            self._spawn(self._restart(slot, engine))

    async def _restart(self, slot: EngineSlot, dead: Engine) -> None:
        """Restarts the engine of `slot`, with as many attempts as it takes."""
        await dead.close()
        while True:
            slot.faults += 1
            await asyncio.sleep(pause_after(slot.faults, PAUSES_S))
            try:
                engine = await self._start_engine()
            except EngineFault as fault:
                logger.error("engine %d: %s", slot.number, fault)
                slot.failing = True
                if not self.ready:
                    for job in [job for job in self._jobs.values() if job.slot is None]:
                        self._queued -= 1
                        self._finish(job, fault)
                continue
            metrics.ENGINE_RESTARTS.inc()
            logger.warning("engine %d restarted as process %d", slot.number, engine.pid)
            self._install(slot, engine)
            return

    async def _watch(self) -> None:
        """Kills engines that hang, and fails searches that waited too long."""
        while True:
            await asyncio.sleep(min(0.25, self._deadline_s / 4))
            for slot in self._slots:
                if slot.engine and slot.engine.running_s > self._deadline_s:
                    slot.engine.kill(f"the engine hung: no bestmove in {self._deadline_s:g} s")
            oldest = time.monotonic() - MAX_WAIT_S
            for job in [job for job in self._jobs.values() if job.slot is None and job.since < oldest]:
                self._queued -= 1
                why = f"no engine was free for {MAX_WAIT_S:.0f} s"
                self._finish(job, self._overloaded(why, nodes=job.query.nodes))

    def _overloaded(self, why: str, *, nodes: int) -> Unavailable:
        error = Unavailable(why)
        s_per_node = max((slot.engine.s_per_node for slot in self._slots if slot.engine), default=1e-6)
        error.retry_after_s = max(1.0, self._queued * nodes * s_per_node / len(self._slots))
        return error

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start_engine(self) -> Engine:
        engine = await Engine.start(self._path, hash_mb=self._hash_mb)
        if self.engine_id and engine.name != self.engine_id:
            await engine.close()
            raise EngineFault(
                f"the engine is now {engine.name!r}, not {self.engine_id!r}: restart the service"
            )
        return engine
