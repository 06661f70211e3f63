"""The shared cache over a real Redis: together when it is there, done without when it is not."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis

from rookery import metrics, shared_cache
from rookery.errors import SetupError
from rookery.shared_cache import PREFIX, SharedCache
from tests.conftest import RedisServer, free_port
from tests.waiting import eventually

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cache, "PROBE_EVERY_S", 0.05)
    monkeypatch.setattr(shared_cache, "REDIS_TIMEOUT_S", 20.0)  # a test machine may be that busy
    monkeypatch.setattr(shared_cache, "LOOKUP_TIMEOUT_S", 20.0)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a Redis that is silent on purpose."""
    monkeypatch.setattr(shared_cache, "REDIS_TIMEOUT_S", 0.3)


@pytest.fixture
async def cache(redis_url: str) -> AsyncIterator[SharedCache]:
    cache = SharedCache(redis_url)
    yield cache
    await cache.close()


@pytest.fixture
async def own(redis_server: RedisServer) -> AsyncIterator[SharedCache]:
    """A cache over a Redis that the test may stop."""
    cache = SharedCache(redis_server.url)
    yield cache
    await cache.close()


@contextlib.contextmanager
def looking_into(url: str) -> Iterator[redis.Redis]:
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        yield client


def calls(client: redis.Redis, command: str) -> int:
    stats = client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def count(counter: object, result: str) -> float:
    return counter.labels(result)._value.get()  # type: ignore[attr-defined]


def written(url: str, key: str) -> Callable[[], object]:
    def look() -> object:
        with looking_into(url) as client:
            return client.get(PREFIX + key)

    return look


async def test_what_one_replica_puts_another_gets(cache: SharedCache, redis_url: str) -> None:
    assert await cache.get_many(["a", "b"]) == [None, None]
    cache.put("a", b"\x00\xff")
    await eventually(written(redis_url, "a"))
    other = SharedCache(redis_url)
    assert await other.get_many(["b", "a", "a"]) == [None, b"\x00\xff", b"\x00\xff"]
    await other.close()


async def test_entries_go_when_nobody_writes_them_anew(redis_url: str) -> None:
    cache = SharedCache(redis_url, ttl_s=500)
    cache.put("a", b"1")
    await cache.close()
    with looking_into(redis_url) as client:
        assert 0 < client.ttl(PREFIX + "a") <= 500


async def test_no_keys_are_no_question(cache: SharedCache, redis_url: str) -> None:
    assert await cache.get_many([]) == []


async def test_what_is_asked_at_once_travels_together(cache: SharedCache, redis_url: str) -> None:
    for number in range(1_000):
        cache.put(str(number), str(number).encode())
    await eventually(written(redis_url, "999"))
    with looking_into(redis_url) as client:
        client.config_resetstat()
        answers = await asyncio.gather(*(cache.get_many([str(n), f"no-{n}"]) for n in range(1_000)))
        # Not compared whole: pytest would lay out a thousand differences for minutes.
        wrong = [(n, got) for n, got in enumerate(answers) if got != [str(n).encode(), None]]
        assert wrong[:3] == []
        assert calls(client, "mget") == 4  # 2,000 keys, 512 at a time


async def test_writes_travel_in_pipelines(cache: SharedCache, redis_url: str) -> None:
    before = count(metrics.SHARED_CACHE_WRITES, "written")
    for number in range(1_100):
        cache.put(str(number % 1_000), b"x")
    await eventually(lambda: not cache._pending)
    assert count(metrics.SHARED_CACHE_WRITES, "written") == before + 1_000
    with looking_into(redis_url) as client:
        assert client.dbsize() == 1_000


async def test_an_asker_who_leaves_disturbs_nobody(cache: SharedCache, redis_url: str) -> None:
    with looking_into(redis_url) as client:
        client.set(PREFIX + "a", b"1")
    leaver, stayer = (asyncio.create_task(cache.get_many(keys)) for keys in (["b", "c"], ["a"]))
    await asyncio.sleep(0)
    leaver.cancel()
    assert await stayer == [b"1"]


@pytest.mark.usefixtures("_impatient")
async def test_a_redis_that_dies_is_a_miss_and_comes_back(
    own: SharedCache, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    own.put("a", b"1")
    await eventually(written(redis_server.url, "a"))
    redis_server.stop()
    for _ in range(20):
        assert await own.get_many(["a"]) == [None]
    own.put("b", b"2")
    assert metrics.SHARED_CACHE_UP._value.get() == 0
    redis_server.start()
    await eventually(written(redis_server.url, "b"))  # it waited for this
    assert metrics.SHARED_CACHE_UP._value.get() == 1
    assert await own.get_many(["a", "b"]) == [None, b"2"]
    messages = [record.message.split(":")[0] for record in caplog.records]
    assert messages == [
        "the shared cache is unavailable, searches are not shared",
        "the shared cache is available again",
    ]


async def test_a_redis_that_was_never_there(caplog: pytest.LogCaptureFixture) -> None:
    cache = SharedCache(f"redis://127.0.0.1:{free_port()}/0")
    asked = [cache.get_many([str(number)]) for number in range(100)]
    assert all(values == [None] for values in await asyncio.gather(*asked))
    cache.put("a", b"1")
    await asyncio.sleep(0.2)
    await cache.close()
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("_impatient")
async def test_a_redis_that_hangs_is_a_miss_and_mixes_up_nothing_when_it_wakes(
    own: SharedCache, redis_server: RedisServer
) -> None:
    """An answer that comes too late must not be taken for the answer to the next question."""
    for key in "abcdef":
        own.put(key, key.encode())
    await eventually(written(redis_server.url, "f"))
    redis_server.hang()
    try:
        assert await own.get_many(["a", "b"]) == [None, None]
        own.put("g", b"g")
        assert await own.get_many(["c"]) == [None]
    finally:
        redis_server.wake()
    await eventually(lambda: metrics.SHARED_CACHE_UP._value.get() == 1)
    for key in "fedcba":
        assert await own.get_many([key]) == [key.encode()]
    await eventually(written(redis_server.url, "g"))


async def test_no_verdict_waits_for_a_slow_redis(
    own: SharedCache, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_cache, "LOOKUP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(shared_cache, "REDIS_TIMEOUT_S", 60.0)
    before = count(metrics.SHARED_CACHE_READS, "slow")
    redis_server.hang()
    try:
        assert await own.get_many(["a", "b"]) == [None, None]
        assert count(metrics.SHARED_CACHE_READS, "slow") == before + 2
        assert metrics.SHARED_CACHE_UP._value.get() == 1
    finally:
        redis_server.wake()
    await eventually(lambda: not own._lookups)


async def test_a_full_redis_still_answers(
    own: SharedCache, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own.put("a", b"1")
    await eventually(written(redis_server.url, "a"))
    with looking_into(redis_server.url) as client:
        client.config_set("maxmemory", 1)
    before = count(metrics.SHARED_CACHE_WRITES, "refused")
    for key in ("b", "c"):
        own.put(key, b"2")
        await eventually(lambda: not own._pending)
    assert await own.get_many(["a", "b"]) == [b"1", None]
    assert count(metrics.SHARED_CACHE_WRITES, "refused") == before + 2
    assert [record.message.split(":")[0] for record in caplog.records] == ["the shared cache refuses writes"]


async def test_waiting_writes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cache, "MAX_PENDING", 10)
    before = count(metrics.SHARED_CACHE_WRITES, "dropped")
    cache = SharedCache(f"redis://127.0.0.1:{free_port()}/0")
    assert await cache.get_many(["a"]) == [None]
    for number in range(25):
        cache.put(str(number), b"x")
    assert list(cache._pending) == [str(number) for number in range(15, 25)]
    assert count(metrics.SHARED_CACHE_WRITES, "dropped") == before + 15
    await cache.close()


async def test_after_the_end_it_knows_nothing(redis_url: str) -> None:
    cache = SharedCache(redis_url)
    cache.put("a", b"1")
    await cache.close()
    assert written(redis_url, "a")() == b"1"
    cache.put("b", b"2")
    assert await cache.get_many(["a"]) == [None]


async def test_a_wrong_url_is_named_without_its_password() -> None:
    with pytest.raises(SetupError, match="redis://") as caught:
        SharedCache("http://user:secret@host")
    assert "secret" not in str(caught.value)
