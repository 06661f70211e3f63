"""The feed against a real Redis: bounded, resumable, patient."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import redis

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from rookery.codec import decode_position
from rookery.errors import Unavailable
from rookery.metrics import FEED_WAIT_S, REDIS_RETRIES
from rookery.openings import read_openings
from rookery.streams import RunStreams
from rookery.trace import Position
from services.data.feed import Feed
from tests.builders import read
from tests.conftest import ROOT, RedisServer
from tests.waiting import eventually

pytestmark = pytest.mark.redis

SEED = 3


@pytest.fixture(scope="module")
def order() -> Iterator[PositionOrder]:
    with contextlib.closing(GameCollection([ROOT / "samples" / "lichess.pgn.zst"])) as games:
        yield PositionOrder(games, shares=Shares(), split="heldout")


@pytest.fixture
def given_up() -> Iterator[threading.Event]:
    """Ends whatever still waits for Redis."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def connect(given_up: threading.Event) -> Callable[[str], RunStreams]:
    return lambda url: RunStreams(url, "test", stopping=given_up)


@pytest.fixture
def streams(redis_url: str, connect: Callable[[str], RunStreams]) -> RunStreams:
    return connect(redis_url)


def feed(streams: RunStreams, order: PositionOrder, *, depth: int = 256) -> Feed:
    return Feed(streams, partial(order.position, seed=SEED), seed=SEED, depth=depth)


def fill(feed: Feed) -> None:
    while feed.top_up():
        pass


def take(streams: RunStreams, count: int) -> list[Position]:
    """Reads positions and has done with them, as rollouts do."""
    taken = []
    for _ in range(count):
        [entry] = read(streams.positions, 1)
        streams.positions.dead_letter(entry.id, reason="taken")
        taken.append(decode_position(entry.data))
    return taken


def expected(order: PositionOrder, numbers: range) -> list[Position]:
    return [order.position(number, seed=SEED) for number in numbers]


@contextlib.asynccontextmanager
async def running(feed: Feed, given_up: threading.Event) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    task = asyncio.create_task(feed.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        given_up.set()
        await task


@pytest.mark.parametrize("depth", [1, 64, 100, 256])
def test_the_stream_is_filled_to_its_depth_and_no_further(
    streams: RunStreams, order: PositionOrder, depth: int
) -> None:
    fill(feed(streams, order, depth=depth))
    assert streams.positions.length() == streams.positions.cursor() == depth


def test_positions_come_in_the_seeded_order(streams: RunStreams, order: PositionOrder) -> None:
    fill(feed(streams, order, depth=20))
    assert take(streams, 20) == expected(order, range(20))


def test_a_feed_that_starts_again_goes_on(streams: RunStreams, order: PositionOrder) -> None:
    fill(feed(streams, order, depth=10))
    first = take(streams, 7)
    fill(feed(streams, order, depth=10))
    assert first + take(streams, 10) == expected(order, range(17))


def test_what_a_consumer_holds_counts(streams: RunStreams, order: PositionOrder) -> None:
    fill(feed(streams, order, depth=10))
    streams.positions.read(consumer="c", count=10, block_s=1.0)
    assert feed(streams, order, depth=10).top_up() == 0


def test_two_feeds_share_one_order(
    redis_url: str, connect: Callable[[str], RunStreams], streams: RunStreams, order: PositionOrder
) -> None:
    feeds = [feed(connect(redis_url), order, depth=100) for _ in range(2)]
    stop = threading.Event()
    overfilled = []

    def work(feed: Feed) -> None:
        while not stop.is_set():
            feed.top_up()
            if streams.positions.length() > 100:
                overfilled.append(streams.positions.length())

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(work, feed) for feed in feeds]
        try:
            taken = take(streams, 300)
        finally:
            stop.set()
    assert all(future.exception() is None for future in working)
    assert taken == expected(order, range(300))
    assert not overfilled


async def test_a_full_stream_is_waited_for(
    streams: RunStreams, order: PositionOrder, given_up: threading.Event
) -> None:
    waited = FEED_WAIT_S._value.get()
    async with running(feed(streams, order, depth=5), given_up):
        await eventually(lambda: streams.positions.length() == 5)
        await eventually(lambda: FEED_WAIT_S._value.get() > waited + 0.1)
        assert await asyncio.to_thread(take, streams, 5) == expected(order, range(5))
        await eventually(lambda: streams.positions.cursor() == 10)


async def test_an_absent_redis_is_waited_for(
    redis_server: RedisServer,
    connect: Callable[[str], RunStreams],
    given_up: threading.Event,
    order: PositionOrder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    streams = connect(redis_server.url)
    redis_server.stop()
    retries = REDIS_RETRIES._value.get()
    async with running(feed(streams, order, depth=5), given_up):
        await eventually(lambda: REDIS_RETRIES._value.get() > retries)
        await eventually(lambda: any("redis is unavailable" in message for message in caplog.messages))
        await asyncio.to_thread(redis_server.start)
        await eventually(lambda: streams.positions.length() == 5)


async def test_a_redis_that_lost_everything_is_filled_again(
    redis_server: RedisServer,
    connect: Callable[[str], RunStreams],
    given_up: threading.Event,
    order: PositionOrder,
) -> None:
    streams = connect(redis_server.url)
    async with running(feed(streams, order, depth=5), given_up):
        await eventually(lambda: streams.positions.length() == 5)
        with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
            client.flushall()
        await eventually(lambda: streams.positions.length() == 5)
        assert await asyncio.to_thread(take, streams, 5) == expected(order, range(5))


async def test_stopping_ends_a_feed_that_waits_for_redis(
    redis_server: RedisServer,
    connect: Callable[[str], RunStreams],
    given_up: threading.Event,
    order: PositionOrder,
) -> None:
    redis_server.stop()
    retries = REDIS_RETRIES._value.get()
    async with running(feed(connect(redis_server.url), order), given_up):
        await eventually(lambda: REDIS_RETRIES._value.get() > retries)


async def test_a_feed_nobody_stopped_does_not_give_up_quietly(
    redis_server: RedisServer,
    connect: Callable[[str], RunStreams],
    given_up: threading.Event,
    order: PositionOrder,
) -> None:
    redis_server.stop()
    given_up.set()
    with pytest.raises(Unavailable, match="stopped while redis was unavailable"):
        await feed(connect(redis_server.url), order).run(asyncio.Event())


def test_games_begin_with_openings_beside_other_positions(
    streams: RunStreams, order: PositionOrder, tmp_path: Path
) -> None:
    """Drawn from the file by the seed; the game so far comes with each."""
    book = tmp_path / "book.epd"
    book.write_text("rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2\n")
    mix = f"move + game,start=book + game,start={book}"

    def numbered(number: int) -> Position:
        return replace(
            order.position(number, seed=SEED), task="policy", target="e2e4", white_elo=1500, black_elo=1600
        )

    Feed(streams, numbered, seed=SEED, depth=30, episode=mix).top_up()
    positions = take(streams, 30)
    assert {position.episode for position in positions} == {"", "game,start=book", f"game,start={book}"}
    lines = {opening.moves: opening for opening in read_openings()}
    for number, position in enumerate(positions):
        if position.episode:
            assert (position.task, position.target, position.white_elo, position.black_elo) == (
                "",
                "",
                None,
                None,
            )
        if position.episode == "game,start=book":
            assert position.fen == lines[position.last_moves].board().fen()
            assert position.ply == len(position.last_moves)
        elif position.episode:
            assert position.fen.startswith("rnbqkbnr/pppp1ppp/8/4p3")
        else:
            assert position == numbered(number)
    assert len({position.fen for position in positions if position.episode == "game,start=book"}) > 3
