"""A full Redis: the replicas' shared cache makes room, a run loses nothing and waits where it must."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis
import yaml

from launcher.observer import Observer
from rookery.errors import Unavailable
from rookery.metrics import REDIS_RETRIES
from rookery.shared_cache import SharedCache
from rookery.streams import RunStreams
from tests.conftest import ROOT, RedisServer
from tests.unit.rookery.records import POSITION
from tests.waiting import until

pytestmark = pytest.mark.redis

SPARE_BYTES = 2 << 20


def policy() -> str:
    command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["redis"]["command"]
    return str(command[command.index("--maxmemory-policy") + 1])


async def remember(url: str, count: int) -> None:
    cache = SharedCache(url)
    for number in range(count):
        cache.put(f"key-{number}", bytes(1000))
        if number % 500 == 0:
            await asyncio.sleep(0.05)
    await cache.close()


def test_a_full_redis_evicts_the_cache_and_nothing_of_a_run(redis_server: RedisServer) -> None:
    streams = RunStreams(redis_server.url, "r1")
    streams.positions.add([POSITION] * 50, cursor=0)
    with redis.Redis.from_url(redis_server.url) as client:
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", used + SPARE_BYTES)
        client.config_set("maxmemory-policy", policy())
        keys = set(client.keys("rookery:r1:*"))
        assert {client.ttl(key) for key in keys} == {-1}
        asyncio.run(remember(redis_server.url, 2 * SPARE_BYTES // 1000))
        assert client.info("stats")["evicted_keys"] > 100
        assert set(client.keys("rookery:r1:*")) == keys
    assert streams.positions.length() == 50
    streams.positions.add([POSITION], cursor=50)


def test_a_run_waits_while_redis_has_no_room(redis_server: RedisServer) -> None:
    streams = RunStreams(redis_server.url, "r1")
    with redis.Redis.from_url(redis_server.url) as client, ThreadPoolExecutor(1) as threads:
        client.config_set("maxmemory", 1)
        retries = REDIS_RETRIES._value.get()
        adding = threads.submit(streams.positions.add, [POSITION], cursor=0)
        until(lambda: REDIS_RETRIES._value.get() >= retries + 2 or adding.done())
        assert not adding.done(), adding.exception()
        with closing(Observer({}, redis_url=redis_server.url, run="r1", run_dir=None)) as observer:
            snapshot = observer.look()
        assert snapshot.redis == "full: it refuses writes"
        assert (snapshot.overview.positions, snapshot.overview.full) == (0, True)
        with pytest.raises(Unavailable, match="used memory"):
            RunStreams(redis_server.url, "r1", once=True).overview()
        client.config_set("maxmemory", 0)
        adding.result(timeout=60)
    assert streams.positions.length() == 1
    assert not streams.overview().full
