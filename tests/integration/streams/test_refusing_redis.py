"""A Redis that answers with an error: after a failover it is waited for, with a wrong password it is not."""

import contextlib
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rookery.codec import decode_position
from rookery.errors import SetupError
from rookery.metrics import REDIS_RETRIES
from rookery.streams import RunStreams
from tests.builders import feed, numbered_position, read
from tests.commands import call
from tests.conftest import ROOT, RedisServer, free_port
from tests.waiting import until

pytestmark = pytest.mark.redis


def _become_a_replica(client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", str(free_port()))


def _lose_the_master(client: redis.Redis) -> None:
    client.config_set("replica-serve-stale-data", "no")
    _become_a_replica(client)


def _run_a_long_script(client: redis.Redis) -> None:
    client.config_set("lua-time-limit", 1)
    with contextlib.suppress(redis.TimeoutError):
        client.eval("while true do end", 0)


def _become_a_master(client: redis.Redis) -> None:
    client.replicaof("NO", "ONE")


FAULTS: dict[str, tuple[Callable[[redis.Redis], object], Callable[[redis.Redis], object]]] = {
    "READONLY": (_become_a_replica, _become_a_master),
    "MASTERDOWN": (_lose_the_master, _become_a_master),
    "NOREPLICAS": (
        lambda client: client.config_set("min-replicas-to-write", 1),
        lambda client: client.config_set("min-replicas-to-write", 0),
    ),
    "BUSY": (_run_a_long_script, lambda client: client.script_kill()),
}
"""What makes a Redis answer with each error, and what ends that."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", ["script", "command", "transaction"])
def test_a_redis_that_fails_over_or_is_busy_is_waited_for(
    redis_server: RedisServer, fault: str, call: str
) -> None:
    streams = RunStreams(redis_server.url, "r1")
    feed(streams, 1)
    assert streams.positions.read(consumer="c", count=1, block_s=0.01) == []  # creates the group
    calls: dict[str, Callable[[], object]] = {
        "script": lambda: streams.positions.add([numbered_position(1)], cursor=1),
        "command": lambda: len(read(streams.positions, 1)),
        "transaction": lambda: streams.overview().positions,
    }
    begin, end = FAULTS[fault]
    with (
        redis.Redis.from_url(redis_server.url, socket_timeout=0.5, retry=Retry(NoBackoff(), 0)) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        begin(client)
        retries = REDIS_RETRIES._value.get()
        calling = threads.submit(calls[call])
        until(lambda: REDIS_RETRIES._value.get() >= retries + 2 or calling.done())
        # Replicas and masters without replicas still answer who only reads.
        reads = call == "transaction" and fault in ("READONLY", "NOREPLICAS")
        assert calling.done() == reads, calling.exception()
        end(client)
        assert calling.result(timeout=120) == {"script": 2, "command": 1, "transaction": 1}[call]
    assert streams.positions.cursor() == streams.positions.length() == (2 if call == "script" else 1)


@pytest.mark.parametrize(
    "answer",
    [
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN Hash slot not served",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "UNBLOCKED the stream key no longer exists",
    ],
)
def test_an_error_that_passes_is_waited_for(redis_url: str, answer: str) -> None:
    """Those that take a cluster, or more than a test can cause, come from a script."""
    script = "if redis.call('INCR', KEYS[1]) < 3 then return redis.error_reply(ARGV[1]) end return 'done'"
    assert RunStreams(redis_url, "r1").redis.script(script, ["tries"], answer) == b"done"


def test_a_failover_during_a_blocked_read_is_waited_for(redis_server: RedisServer) -> None:
    streams = RunStreams(redis_server.url, "r1")
    assert streams.positions.read(consumer="c", count=1, block_s=0.01) == []  # creates the group
    with redis.Redis.from_url(redis_server.url) as client, ThreadPoolExecutor(1) as threads:
        reading = threads.submit(streams.positions.read, consumer="c", count=1, block_s=10)
        until(lambda: client.info("clients")["blocked_clients"])
        retries = REDIS_RETRIES._value.get()
        _become_a_replica(client)
        until(lambda: REDIS_RETRIES._value.get() >= retries + 2 or reading.done())
        assert not reading.done(), reading.exception()
        _become_a_master(client)
        feed(streams, 1)
        (entry,) = reading.result(timeout=120)
        assert decode_position(entry.data) == numbered_position(0)


@pytest.fixture
def guarded(redis_server: RedisServer) -> str:
    """The URL of a Redis with a password, and the wrong one in it."""
    with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("requirepass", "right")
    return redis_server.url.replace("://", "://:wrong@")


@pytest.mark.parametrize("given", [":wrong@", ":in wrong@", "", "nobody:right@"])
def test_a_wrong_password_ends_at_once(guarded: str, given: str) -> None:
    streams = RunStreams(guarded.replace(":wrong@", given), "r1")
    for ask in (
        streams.take_over,
        streams.redis.ping,
        lambda: streams.redis.ping(once=True),
        streams.overview,
    ):
        with pytest.raises(SetupError, match="refuses the user or password of --redis-url") as raised:
            ask()
        assert "right@" not in str(raised.value)
        assert "wrong" not in str(raised.value)


PROCESSES = {
    "feed": ["services.data.feed", "--sources", "samples/lichess.pgn.zst"],
    "archive": ["services.data.archiver", "--out", "OUT"],
    "rollouts": ["services.inference.rollouts", "--style", "mover-squares"],
    "trainer": ["services.trainer", "--model", "models/rook-tiny", "--run-dir", "OUT", "--device", "cpu"],
    "inference": ["services.inference.server", "--model", "models/rook-tiny", "--adapter-root", "OUT"],
    "exporter": ["launcher", "exporter"],
    "status": ["launcher", "status"],
}


@pytest.mark.parametrize("name", PROCESSES)
def test_so_does_every_process(
    guarded: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOKERY_RUN", "r1")
    if name in ("trainer", "inference"):
        pytest.importorskip("torch" if name == "trainer" else "vllm")
    module, *flags = (part.replace("OUT", str(tmp_path)) for part in PROCESSES[name])
    port = [] if name == "status" else ["--port", str(free_port())]
    argv = [*flags, "--redis-url", guarded, *port]
    if name == "trainer":  # here, where torch is imported already
        from services.trainer.__main__ import main

        monkeypatch.setattr(sys, "argv", [module, *argv])
        done = call(lambda _: main(), argv)
    else:
        done = subprocess.run(
            [sys.executable, "-m", module, *argv], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "refuses the user or password of --redis-url" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
