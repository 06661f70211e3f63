"""Bytes remembered in a Redis that replicas share, for a caller who can do without them at any moment.

A Redis that is away, slow or full is a miss: never an error, never a delay worth naming. After one fault
it is left alone until a probe in the background finds it well again. What is asked in one tick of the
event loop travels as one MGET; writes follow behind. What the bytes mean, and whether to believe them,
is the caller's business.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rookery import metrics
from rookery.errors import SetupError

logger = logging.getLogger(__name__)

PREFIX = "rookery:reward:"

TTL_S = 30 * 24 * 3600
"""What is remembered never grows stale, but engines and settings go out of use."""

PATIENCE_S = 0.1
"""A look-up that takes longer is a miss; within a data centre it takes about one millisecond."""

FAULT_S = 1.0
"""A Redis silent for this long, connecting included, is away."""

PROBE_S = 2.0
"""Between two probes of a Redis that is away."""

WRITE_DELAY_S = 0.02
"""How long the first write waits for others."""

MAX_KEYS = 512
"""Keys of one MGET and writes of one pipeline: tens of kilobytes, which hold up nobody else's commands."""

MAX_PENDING = 20_000
"""Writes that wait, about 5 MB; beyond them the oldest are given up."""

_CLOSE_S = 2.0
_FAULTS = (redis.RedisError, OSError, TimeoutError)


_HITS = metrics.SHARED_CACHE_READS.labels("hit")
_MISSES = metrics.SHARED_CACHE_READS.labels("miss")
_SLOW = metrics.SHARED_CACHE_READS.labels("slow")
_AWAY = metrics.SHARED_CACHE_READS.labels("away")

Values = list[bytes | None]


@dataclass(frozen=True, slots=True)
class _Question:
    keys: Sequence[str]
    answer: asyncio.Future[Values]


class SharedCache:
    """Keys to bytes in the Redis at `url`. Use it from one event loop; it connects when first needed."""

    def __init__(self, url: str, *, ttl_s: int = TTL_S) -> None:
        """Raises `SetupError` when that is no URL of a Redis."""
        try:
            self._redis = redis.asyncio.Redis.from_url(url, retry=Retry(NoBackoff(), 0))
            pool = self._redis.connection_pool
            pool.connection_class(
                **pool.connection_kwargs
            )  # where a wrong `?option=` would be found, much later
        except (
            ValueError,
            TypeError,
            redis.RedisError,
        ) as error:  # says what is wrong without the URL, which may hold a password
            raise SetupError(f"shared cache: {error}") from error
        self._ttl_s = ttl_s
        self._questions: list[_Question] = []
        self._pending: dict[str, bytes] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._away = self._refused = self._closed = False
        metrics.SHARED_CACHE_UP.set(1)

    async def get_many(self, keys: Sequence[str]) -> Values:
        """The values of `keys` in their order, None where nothing is known in time."""
        values: Values = []
        if self._away or self._closed:
            _AWAY.inc(len(keys))
        else:
            values = await self._asked(keys)
        return values or [None] * len(keys)

    def put(self, key: str, value: bytes) -> None:
        """Remembers `value` soon, or as soon as Redis is back."""
        self._pending[key] = value
        if len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
            metrics.SHARED_CACHE_WRITES.labels("dropped").inc()
        if not (self._away or self._closed):
            self._begin(self._write)

    async def close(self) -> None:
        """Writes what waits, if Redis takes it now, and disconnects."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._write()
        with suppress(*_FAULTS):
            await self._redis.aclose()

    async def _asked(self, keys: Sequence[str]) -> Values:
        question = _Question(keys, asyncio.get_running_loop().create_future())
        self._questions.append(question)
        self._begin(self._read)
        try:
            async with asyncio.timeout(PATIENCE_S):
                values = await question.answer
        except TimeoutError:
            _SLOW.inc(len(keys))
            return []
        hits = len(values) - values.count(None)
        _HITS.inc(hits)
        _MISSES.inc(len(values) - hits)
        _AWAY.inc(len(keys) - len(values))
        return values

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._tasks.get(work.__name__)
        if task is None or task.done():
            self._tasks[work.__name__] = asyncio.create_task(work(), name=f"shared-cache-{work.__name__}")

    async def _read(self) -> None:
        while self._questions:
            await asyncio.sleep(0)  # for whoever else asks in this tick
            asked = self._next_questions()
            keys = [PREFIX + key for question in asked for key in question.keys]
            values: Values | None = None
            try:
                values = await self._ask(lambda: self._redis.mget(keys)) if keys else None  # noqa: B023
            finally:
                _answer(asked, values)

    def _next_questions(self) -> list[_Question]:
        """The oldest questions whose askers still wait, about `MAX_KEYS` keys."""
        taken, keys = [], 0
        waiting = iter(self._questions)
        for question in waiting:
            if not question.answer.done():
                taken.append(question)
                keys += len(question.keys)
            if keys >= MAX_KEYS:
                break
        self._questions = list(waiting)
        return taken

    async def _write(self) -> None:
        await asyncio.sleep(WRITE_DELAY_S)
        while self._pending:
            batch = dict(islice(self._pending.items(), MAX_KEYS))
            pipeline = self._redis.pipeline(transaction=False)
            for key, value in batch.items():
                pipeline.set(PREFIX + key, value, ex=self._ttl_s)
            results = await self._ask(lambda: pipeline.execute(raise_on_error=False))  # noqa: B023
            if results is None:
                return
            self._settle(batch, results)

    def _settle(self, batch: dict[str, bytes], results: list[Any]) -> None:
        for key, value in batch.items():
            if self._pending.get(key) is value:
                del self._pending[key]
        refusals = [result for result in results if isinstance(result, Exception)]
        metrics.SHARED_CACHE_WRITES.labels("refused").inc(len(refusals))
        metrics.SHARED_CACHE_WRITES.labels("written").inc(len(results) - len(refusals))
        if refusals and not self._refused:  # full, or a read-only replica: it still answers
            logger.warning("the shared cache refuses to remember: %s", refusals[0])
        self._refused = bool(refusals)

    async def _ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """What Redis answers, None when it is away."""
        if self._away:
            return None
        try:
            async with asyncio.timeout(FAULT_S):
                return await call()
        except _FAULTS as error:
            self._lose(str(error) or f"silent for {FAULT_S:g} s")
            return None

    def _lose(self, reason: str) -> None:
        if self._away or self._closed:
            return
        logger.warning("the shared cache is away, and done without: %s", reason)
        metrics.SHARED_CACHE_UP.set(0)
        self._away = True
        self._begin(self._probe)

    async def _probe(self) -> None:
        while self._away:
            await asyncio.sleep(PROBE_S)
            with suppress(*_FAULTS):
                async with asyncio.timeout(FAULT_S):
                    await self._redis.mget([PREFIX + "probe"])
                self._away = False
        logger.info("the shared cache is back")
        metrics.SHARED_CACHE_UP.set(1)
        if self._pending:
            self._begin(self._write)


def _answer(questions: list[_Question], values: Values | None) -> None:
    """Gives each its share of `values`, or nothing."""
    rest = iter(values or ())
    for question in questions:
        share = list(islice(rest, len(question.keys)))
        if not question.answer.done():
            question.answer.set_result(share)
