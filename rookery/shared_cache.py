"""A cache of bytes in a Redis that replicas share. Every look-up may miss.

If Redis is unavailable or slow, a look-up is a miss: it raises no error and ends after `LOOKUP_TIMEOUT_S`.
After a fault, Redis is not used again until a background probe succeeds. Look-ups in the same tick of the
event loop are sent as one MGET, and writes are sent later in batches. The caller must validate the bytes.
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
"""Time to live of an entry. Entries never become wrong, but engines and settings go out of use."""

LOOKUP_TIMEOUT_S = 0.1
"""A look-up that takes longer is a miss; within a data centre it takes about one millisecond."""

REDIS_TIMEOUT_S = 1.0
"""Redis is considered unavailable if it does not answer within this time, including the connection."""

PROBE_EVERY_S = 2.0
"""Seconds between two probes while Redis is unavailable."""

WRITE_DELAY_S = 0.02
"""How long the first write waits for others."""

MAX_KEYS = 512
"""Keys per MGET and writes per pipeline: tens of kilobytes, which do not delay other clients' commands."""

MAX_PENDING = 20_000
"""Maximum number of waiting writes, about 5 MB. Beyond it, the oldest are dropped."""

_CLOSE_S = 2.0
_FAULTS = (redis.RedisError, OSError, TimeoutError)

_HITS = metrics.SHARED_CACHE_READS.labels("hit")
_MISSES = metrics.SHARED_CACHE_READS.labels("miss")
_SLOW = metrics.SHARED_CACHE_READS.labels("slow")
_UNAVAILABLE = metrics.SHARED_CACHE_READS.labels("away")

Values = list[bytes | None]


@dataclass(frozen=True, slots=True)
class _Lookup:
    keys: Sequence[str]
    answer: asyncio.Future[Values]


class SharedCache:
    """A cache in the Redis at `url`. Use it from one event loop. It connects when it is first used."""

    def __init__(self, url: str, *, ttl_s: int = TTL_S) -> None:
        """Raises `SetupError` if `url` is not a valid Redis URL."""
        try:
            self._redis = redis.asyncio.Redis.from_url(url, retry=Retry(NoBackoff(), 0))
            pool = self._redis.connection_pool
            # A trial: a wrong `?option=` would otherwise be found only on the first connection.
            pool.connection_class(**pool.connection_kwargs)
        except (ValueError, TypeError, redis.RedisError) as error:
            raise SetupError(f"shared cache: {error}") from error  # not the URL: it may hold a password
        self._ttl_s = ttl_s
        self._lookups: list[_Lookup] = []
        self._pending: dict[str, bytes] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unavailable = self._refusing = self._closed = False
        metrics.SHARED_CACHE_UP.set(1)

    async def get_many(self, keys: Sequence[str]) -> Values:
        """The values of `keys`, in their order. None for a key that is unknown or not found in time."""
        values: Values = []
        if self._unavailable or self._closed:
            _UNAVAILABLE.inc(len(keys))
        else:
            values = await self._look_up(keys)
        return values or [None] * len(keys)

    def put(self, key: str, value: bytes) -> None:
        """Queues a write of `value`. It is sent soon, or once Redis is available again."""
        self._pending[key] = value
        if len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
            metrics.SHARED_CACHE_WRITES.labels("dropped").inc()
        if not (self._unavailable or self._closed):
            self._start_task(self._write)

    async def close(self) -> None:
        """Sends the waiting writes, if Redis accepts them within `_CLOSE_S`, and disconnects."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._write()
        with suppress(*_FAULTS):
            await self._redis.aclose()

    async def _look_up(self, keys: Sequence[str]) -> Values:
        lookup = _Lookup(keys, asyncio.get_running_loop().create_future())
        self._lookups.append(lookup)
        self._start_task(self._read)
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                values = await lookup.answer
        except TimeoutError:
            _SLOW.inc(len(keys))
            return []
        hits = len(values) - values.count(None)
        _HITS.inc(hits)
        _MISSES.inc(len(values) - hits)
        _UNAVAILABLE.inc(len(keys) - len(values))
        return values

    def _start_task(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._tasks.get(work.__name__)
        if task is None or task.done():
            self._tasks[work.__name__] = asyncio.create_task(work(), name=f"shared-cache-{work.__name__}")

    async def _read(self) -> None:
        while self._lookups:
            await asyncio.sleep(0)  # collect the other look-ups of this tick
            lookups = self._next_lookups()
            keys = [PREFIX + key for lookup in lookups for key in lookup.keys]
            values: Values | None = None
            try:
                values = await self._ask(lambda: self._redis.mget(keys)) if keys else None  # noqa: B023
            finally:
                _resolve(lookups, values)

    def _next_lookups(self) -> list[_Lookup]:
        """Removes the oldest look-ups, about `MAX_KEYS` keys, and returns those that have not timed out."""
        lookups, keys = [], 0
        waiting = iter(self._lookups)
        for lookup in waiting:
            if not lookup.answer.done():
                lookups.append(lookup)
                keys += len(lookup.keys)
            if keys >= MAX_KEYS:
                break
        self._lookups = list(waiting)
        return lookups

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
            self._record_results(batch, results)

    def _record_results(self, batch: dict[str, bytes], results: list[Any]) -> None:
        for key, value in batch.items():
            if self._pending.get(key) is value:
                del self._pending[key]
        refusals = [result for result in results if isinstance(result, Exception)]
        metrics.SHARED_CACHE_WRITES.labels("refused").inc(len(refusals))
        metrics.SHARED_CACHE_WRITES.labels("written").inc(len(results) - len(refusals))
        if refusals and not self._refusing:  # full, or a read-only replica: it still answers
            logger.warning("the shared cache refuses writes: %s", refusals[0])
        self._refusing = bool(refusals)

    async def _ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer of Redis, or None if it is unavailable."""
        if self._unavailable:
            return None
        try:
            async with asyncio.timeout(REDIS_TIMEOUT_S):
                return await call()
        except _FAULTS as error:
            self._mark_unavailable(str(error) or f"no answer in {REDIS_TIMEOUT_S:g} s")
            return None

    def _mark_unavailable(self, reason: str) -> None:
        if self._unavailable or self._closed:
            return
        logger.warning("the shared cache is unavailable, searches are not shared: %s", reason)
        metrics.SHARED_CACHE_UP.set(0)
        self._unavailable = True
        self._start_task(self._probe)

    async def _probe(self) -> None:
        while self._unavailable:
            await asyncio.sleep(PROBE_EVERY_S)
            with suppress(*_FAULTS):
                async with asyncio.timeout(REDIS_TIMEOUT_S):
                    await self._redis.mget([PREFIX + "probe"])
                self._unavailable = False
        logger.info("the shared cache is available again")
        metrics.SHARED_CACHE_UP.set(1)
        if self._pending:
            self._start_task(self._write)


def _resolve(lookups: list[_Lookup], values: Values | None) -> None:
    """Gives each look-up its part of `values`, or an empty list if there are none."""
    rest = iter(values or ())
    for lookup in lookups:
        share = list(islice(rest, len(lookup.keys)))
        if not lookup.answer.done():
            lookup.answer.set_result(share)
