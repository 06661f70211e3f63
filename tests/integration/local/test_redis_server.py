"""The embedded Redis after a crash that ended its append-only file within a script's writes."""

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from launcher.redis_server import find_redis_server, redis_argv, redis_url
from rookery.errors import SetupError
from rookery.streams import RunStreams
from rookery.streams.connection import ServerVersion
from tests.builders import feed
from tests.waiting import until

pytestmark = pytest.mark.redis


class Embedded:
    """The Redis of `rookery up`, started and killed as often as a test likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.streams = RunStreams(redis_url(folder), "test")
        self._process: subprocess.Popen[str] | None = None

    @property
    def aof(self) -> Path:
        (path,) = (p for name in ("appendonly.aof", "*.incr.aof") for p in self.folder.rglob(name))
        return path

    def start(self) -> None:
        argv = redis_argv(self.folder)
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)
        until(self._answers, of=self._process, log=self.folder / "log")

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.streams.redis.client.ping())
        return False

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def feed(self, count: int) -> None:
        feed(self.streams, count)

    def fed(self) -> tuple[int, int]:
        return self.streams.positions.length(), self.streams.positions.cursor()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    server = Embedded(tmp_path / "redis")
    server.start()
    yield server
    server.streams.close()
    server.kill()


@pytest.mark.parametrize("rewritten", [False, True], ids=["commands", "after-an-rdb-preamble"])
@pytest.mark.parametrize("within", [b"HSET", b"cursor\r\n", b"XADD", b"MULTI", b"EXEC"])
def test_an_unfinished_transaction_is_cut_before_redis_starts(
    embedded: Embedded, within: bytes, rewritten: bool
) -> None:
    embedded.feed(2)
    if rewritten:
        embedded.streams.redis.client.bgrewriteaof()
        until(lambda: not embedded.streams.redis.client.info("persistence")["aof_rewrite_in_progress"])
    embedded.feed(3)
    embedded.streams.redis.client.config_set("appendfsync", "always")
    embedded.feed(2)
    embedded.kill()
    whole = embedded.aof.read_bytes()
    last = whole.rindex(b"*1\r\n$5\r\nMULTI")
    torn = whole[: whole.rindex(within) + 2]
    embedded.aof.write_bytes(torn)

    embedded.start()
    assert embedded.fed() == (5, 5)
    (cut,) = embedded.aof.parent.glob("*.cut-at-*")
    assert cut.read_bytes() == torn[last:]
    assert f"ended within a transaction: its last {len(torn) - last} bytes" in (
        (embedded.folder / "log").read_text()
    )
    embedded.streams.redis.client.config_set("appendfsync", "always")
    embedded.feed(4)
    embedded.kill()
    embedded.start()
    assert embedded.fed() == (9, 9)


def test_a_file_that_is_damaged_further_up_is_left_to_redis(embedded: Embedded) -> None:
    embedded.streams.redis.client.config_set("appendfsync", "always")
    for _ in range(3):
        embedded.feed(2)
    embedded.kill()
    whole = embedded.aof.read_bytes()
    torn = whole.replace(b"*1\r\n$4\r\nEXEC\r\n", b"", 1)
    embedded.aof.write_bytes(torn)
    embedded.start()
    assert "complete transactions follow: left as it is" in (embedded.folder / "log").read_text()
    assert embedded.aof.read_bytes() == torn
    assert not list(embedded.aof.parent.glob("*.cut-at-*"))


def test_a_machine_without_bash_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="bash is needed to start Redis"):
        redis_argv(tmp_path / "redis")


def test_only_this_user_reaches_it(embedded: Embedded) -> None:
    assert embedded.streams.redis.server_version().name in ("Redis", "Valkey")
    socket = Path(embedded.streams.redis.client.connection_pool.connection_kwargs["path"])
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert embedded.streams.redis.client.config_get("port") == {"port": "0"}


def test_a_path_that_is_too_long_for_a_socket_gets_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        url = redis_url(tmp_path / ("long" * 25))
        folder = Path(url.removeprefix("unix://")).parent
        assert redis_url(tmp_path / ("long" * 25)) == url != redis_url(tmp_path / ("long" * 26))
        assert (str(folder.parent), stat.S_IMODE(folder.stat().st_mode)) == (short, 0o700)
        folder.chmod(0o755)
        with pytest.raises(SetupError, match="others can enter it"):
            redis_url(tmp_path / ("long" * 25))


def test_so_it_does_where_the_temporary_folder_is_too_long_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 25)))
    folder = Path(redis_url(tmp_path / ("long" * 25)).removeprefix("unix://")).parent
    assert folder.parent == Path("/tmp")
    folder.rmdir()


def test_the_newest_server_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (
        ("redis-server", "Redis server v=8.0.3 sha=0:0"),
        ("valkey-server", "Valkey server v=8.0.10 sha=0:0"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{line}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_redis_server() == str(tmp_path / "valkey-server")
    (tmp_path / "redis-server").write_text("#!/bin/sh\necho 'Redis server v=8.2.0 sha=0:0'\n")
    assert find_redis_server() == str(tmp_path / "redis-server")


def test_data_of_a_newer_server_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (("redis-server", "Redis server v=6.2.20 sha=0:0"), ("valkey-server", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{line}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert str(tmp_path / "redis-server") in redis_argv(tmp_path / "data")
    (tmp_path / "data" / "appendonlydir").mkdir(parents=True)
    with pytest.raises(SetupError, match=r"Redis 6\.2\.20, which cannot read .*appendonlydir"):
        redis_argv(tmp_path / "data")


def test_valkey_is_named_though_it_has_a_version_of_redis_too() -> None:
    assert str(ServerVersion.of_info({"redis_version": "6.2.20"})) == "Redis 6.2.20"
    assert str(ServerVersion.of_info({"redis_version": "7.2.4", "valkey_version": "8.1.3"})) == "Valkey 8.1.3"


def test_a_sound_file_is_left_alone(embedded: Embedded) -> None:
    embedded.feed(3)
    embedded.streams.redis.client.shutdown(nosave=True)
    embedded.kill()
    whole = embedded.aof.read_bytes()
    embedded.start()
    assert embedded.fed() == (3, 3)
    assert embedded.aof.read_bytes() == whole
    assert not list(embedded.aof.parent.glob("*.cut-at-*"))
