"""A Redis that answers with an error: after a failover it is waited for, with a wrong password it is not."""

import contextlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from rookery.errors import SetupError
from rookery.metrics import REDIS_RETRIES
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion
from tests.commands import call
from tests.conftest import ROOT, RedisServer, free_port
from tests.unit.rookery.records import POSITION
from tests.waiting import until

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("call", ["script", "command"])
def test_a_master_that_became_a_replica_is_waited_for(redis_server: RedisServer, call: str) -> None:
    streams = RunStreams(redis_server.url, "r1")
    adapter = Adapter(PolicyVersion(0, "0" * 64), "p", "m")
    streams.publish_policy(adapter, epoch=streams.take_over())
    calls = {"script": lambda: streams.add_positions([POSITION], cursor=0), "command": streams.take_over}
    with redis.Redis.from_url(redis_server.url) as client, ThreadPoolExecutor(1) as threads:
        client.config_set("replica-serve-stale-data", "yes")
        client.replicaof("127.0.0.1", str(free_port()))
        retries = REDIS_RETRIES._value.get()
        calling = threads.submit(calls[call])
        until(lambda: REDIS_RETRIES._value.get() >= retries + 2 or calling.done())
        assert not calling.done(), calling.exception()
        client.replicaof("NO", "ONE")
        calling.result(timeout=30)


@pytest.fixture
def guarded(redis_server: RedisServer) -> str:
    """The URL of a Redis with a password, and the wrong one in it."""
    with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("requirepass", "right")
    return redis_server.url.replace("://", "://:wrong@")


@pytest.mark.parametrize("given", [":wrong@", ":in wrong@", "", "nobody:right@"])
def test_a_wrong_password_ends_at_once(guarded: str, given: str) -> None:
    streams = RunStreams(guarded.replace(":wrong@", given), "r1")
    for ask in (streams.take_over, streams.ping, lambda: streams.ping(once=True), streams.overview):
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
