"""Both processes from outside: they start, refuse to start, stop."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import grpc
import httpx
import pytest

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.games import Split
from chess_datasets.pgn.sources import setting_sources
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from rookery import serving
from rookery.codec import decode_position
from rookery.config.data import DataSettings
from rookery.streams import RunStreams
from rookery.trace import Position
from rookery.v1 import data_pb2, data_pb2_grpc
from services.data.service import data_service
from tests.builders import read
from tests.conftest import RedisServer, free_port
from tests.contract.running_service import START_S, RunningService
from tests.integration.data.producer import make
from tests.unit.rookery.running import running
from tests.waiting import eventually, until

Start = Callable[..., RunningService]

GAME = "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 *\n"


def test_stopping_ends_an_endless_stream(start_data: Start) -> None:
    service = start_data("services.data", "--split", "heldout")
    service.wait_ready()

    async def listen() -> grpc.StatusCode:
        async with grpc.aio.insecure_channel(service.grpc_target) as channel:
            call = data_pb2_grpc.DataServiceStub(channel).SamplePositions(data_pb2.SamplePositionsRequest())
            await anext(aiter(call))
            stopped = asyncio.create_task(asyncio.to_thread(service.stop))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
            await stopped
            return caught.value.code()

    assert asyncio.run(listen()) is grpc.StatusCode.UNAVAILABLE
    assert service.stop()[0] == 0


async def test_a_long_request_ends_with_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowOrder(PositionOrder):
        drawn = 0

        def position(self, number: int, *, seed: int, split: Split | None = None) -> Position:
            self.drawn += 1
            time.sleep(0.01)
            return super().position(number, seed=seed, split=split)

    monkeypatch.setattr(serving, "DRAIN_S", 1)
    settings = DataSettings(port=free_port(), grpc_port=free_port())
    with closing(GameCollection(setting_sources(settings.sources))) as games:
        order = SlowOrder(games, shares=Shares(*settings.shares), split=settings.split)
        service = data_service(order, settings)
        async with running(service) as http:
            asked = asyncio.create_task(http.get("/v1/positions?count=10000", timeout=60.0))
            await eventually(lambda: order.drawn > 0)
            service.stopping.set()
            assert (await asked).status_code == 503
        drawn = order.drawn
        await asyncio.sleep(0.5)
        assert order.drawn - drawn <= 16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 games skipped: no position to give"),
        ("1. e5 *\n", "1 games skipped: games.pgn game 1 at byte 0: bad_move: illegal san: 'e5'"),
    ],
)
def test_nothing_to_sample_is_an_error_at_start(
    start_data: Start, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "games.pgn"
    path.write_text(text)
    for module in ("services.data", "services.data.feed"):
        service = start_data(module, "--sources", str(path), "--split", "all")
        assert service.process.wait(START_S) == 2
        said_here = service.stop()[1].replace(str(path), "games.pgn")
        assert "error: nothing to sample in 'games.pgn' (split 'all'): " + said in said_here


def test_a_taken_port_is_named(start_data: Start) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        for module, setting in (
            ("services.data", "--port (DATA_PORT)"),
            ("services.data.feed", "--port (FEED_PORT)"),
            ("services.data.archiver", "--port (ARCHIVE_PORT)"),
        ):
            service = start_data(module, "--port", str(port))
            assert service.process.wait(START_S) == 2
            assert f"port {port} on 127.0.0.1 is taken: choose another with {setting}" in service.stop()[1]


@pytest.mark.redis
def test_the_feed_feeds_what_the_service_serves(
    start_data: Start, data_service: RunningService, redis_url: str
) -> None:
    feed = start_data("services.data.feed", "--redis-url", redis_url, "--depth", "20", "--seed", "4")
    feed.wait_ready()
    streams = RunStreams(redis_url, "default")
    entries = read(streams.positions, 20)
    served = httpx.get(f"{data_service.url}/v1/positions?count=20&seed=4", timeout=60).json()["positions"]
    assert [decode_position(entry.data).id for entry in entries] == [position["id"] for position in served]
    assert "rookery_feed_wait_seconds_total" in httpx.get(f"{feed.url}/metrics").text
    assert feed.stop()[0] == 0


@pytest.mark.redis
@pytest.mark.parametrize(("module", "flags"), [("feed", ()), ("archiver", ("--out", "OUT"))])
def test_a_process_is_not_ready_while_redis_is_away(
    start_data: Start, redis_server: RedisServer, tmp_path: Path, module: str, flags: Sequence[str]
) -> None:
    flags = [flag.replace("OUT", str(tmp_path / "archive")) for flag in flags]
    service = start_data(f"services.data.{module}", "--redis-url", redis_server.url, *flags)
    service.wait_ready()
    redis_server.stop()
    answer = httpx.get(f"{service.url}/readyz")
    assert answer.status_code == 503
    assert "redis does not answer" in answer.json()["reason"]
    assert httpx.get(f"{service.url}/healthz").is_success
    redis_server.start()
    service.wait_ready()
    redis_server.stop()
    watch = threading.Timer(25, service.process.kill)
    watch.start()
    assert service.stop()[0] == 0
    watch.cancel()


@pytest.mark.redis
def test_the_archiver_archives_until_told_to_stop(start_data: Start, redis_url: str, tmp_path: Path) -> None:
    out = tmp_path / "archive"
    flags = ("--redis-url", redis_url, "--run", "r1", "--out", str(out), "--file-age-s", "600")
    archiver = start_data("services.data.archiver", *flags)
    archiver.wait_ready()
    streams = RunStreams(redis_url, "r1")
    published = make(streams, 3)
    until(lambda: streams.archive.pending() == 3)
    assert list(out.rglob("*.parquet")) == []
    status, log = archiver.stop()
    assert status == 0, log
    assert list(TraceArchive(open_folder(out)).groups(run="r1")) == published


@pytest.mark.redis
def test_an_archive_that_cannot_be_written_ends_the_archiver(
    start_data: Start, redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "archive").write_text("a file, where a folder should be")
    streams = RunStreams(redis_url, "r1")
    make(streams, 1)
    flags = ("--redis-url", redis_url, "--run", "r1", "--out", str(tmp_path / "archive"))
    archiver = start_data("services.data.archiver", *flags, "--file-age-s", "0.1")
    assert archiver.process.wait(START_S) == 2
    assert "archive' is not a folder" in archiver.stop()[1]
    assert streams.overview().unarchived == 1
