"""The feed against a real Redis: bounded, resumable, patient."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import redis

from rookery.codec import decode_draw, decode_position
from rookery.errors import Unavailable
from rookery.metrics import FEED_WAIT_S, REDIS_RETRIES
from rookery.streams import RunStreams
from rookery.trace import Draw, Position
from services.data.feed import Feed
from services.data.pgn.collection import GameCollection
from services.data.positions.numbered import PositionOrder
from services.data.positions.recipe import FORGOTTEN, Repeats, Shares
from tests.builders import ROLLOUTS, group, read
from tests.conftest import ROOT, RedisServer
from tests.waiting import eventually

pytestmark = pytest.mark.redis

GROUP = "rollouts"
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


def repeating(streams: RunStreams, order: PositionOrder, *, depth: int = 256) -> Feed:
    position = partial(order.position, seed=SEED)
    return Feed(streams, position, seed=SEED, depth=depth, repeats=Repeats(0.5, half_life=100))


def publish(streams: RunStreams, count: int, rewards: Callable[[Draw], tuple[float, ...]]) -> list[Draw]:
    """Makes a group of each of the next positions, as rollouts do. Returns how they were chosen."""
    draws = []
    for entry in read(streams, "positions", count, **ROLLOUTS):
        draws.append(draw := decode_draw(entry.draw))
        made = group(int(entry.id.partition("-")[0]))
        [trace] = made.traces
        traces = tuple(
            replace(trace, verdict=replace(trace.verdict, reward=reward)) for reward in rewards(draw)
        )
        made = replace(made, position=decode_position(entry.data), traces=traces, draw=draw)
        assert streams.publish_group(made, entry_id=entry.id, consumer_group=GROUP)
    assert len(draws) == count
    return draws


def fill(feed: Feed) -> None:
    while feed.top_up():
        pass


def take(streams: RunStreams, count: int) -> list[Position]:
    """Reads positions and has done with them, as rollouts do."""
    taken = []
    for _ in range(count):
        [entry] = read(streams, "positions", 1, **ROLLOUTS)
        streams.dead_letter("positions", entry.id, group=GROUP, reason="taken")
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
    assert streams.length("positions") == streams.feed_cursor() == depth


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
    streams.read("positions", group=GROUP, consumer="c", count=10, block_s=1.0)
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
            if streams.length("positions") > 100:
                overfilled.append(streams.length("positions"))

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(work, feed) for feed in feeds]
        try:
            taken = take(streams, 300)
        finally:
            stop.set()
    assert all(future.exception() is None for future in working)
    assert taken == expected(order, range(300))
    assert not overfilled


def test_positions_with_different_rewards_are_fed_again(streams: RunStreams, order: PositionOrder) -> None:
    source = repeating(streams, order, depth=10)
    fill(source)
    first = publish(streams, 10, lambda draw: (0.0, 1.0) if draw.number in (2, 5) else (0.5, 0.5))
    assert first == [Draw(number, 1.0, repeated=False) for number in range(10)]
    fill(source)
    second = take(streams, 10)
    assert {order.position(n, seed=SEED).id for n in (2, 5)} < {position.id for position in second}
    state = streams.feed_state()
    assert state.deviations == {}, "not again before their next groups"
    assert (state.cursor, state.fresh) == (20, 18)
    assert [p.id for p in second if p not in expected(order, range(10))] == [
        p.id for p in expected(order, range(10, 18))
    ]


def test_the_probability_of_a_choice_is_recorded(streams: RunStreams, order: PositionOrder) -> None:
    source = repeating(streams, order, depth=4)
    fill(source)
    publish(streams, 4, lambda draw: (0.0, 1.0 + draw.number))
    weights = {number: (1 + number) / 2 * 0.5 ** ((4 - number) / 100) for number in range(4)}
    fill(source)
    draws = publish(streams, 4, lambda _: (0.5, 0.5))
    assert {draw.repeated for draw in draws} == {True, False}
    for draw in draws:
        total = sum(weights.values())
        expected = 0.5 * weights.pop(draw.number) / total if draw.repeated else 0.5
        assert draw.probability == pytest.approx(expected)
    assert streams.feed_state().deviations.keys() == weights.keys()


def test_a_feed_that_starts_again_chooses_as_the_one_before(
    redis_url: str, connect: Callable[[str], RunStreams], streams: RunStreams, order: PositionOrder
) -> None:
    fill(repeating(streams, order, depth=8))
    publish(streams, 8, lambda draw: (0.0, 1.0 + draw.number))
    state = streams.feed_state()
    feeds = [repeating(connect(redis_url), order), repeating(streams, order)]
    one, other = (feed._draw(state, 16, Repeats(0.5, half_life=100)) for feed in feeds)
    assert one == other
    assert 0 < sum(draw.repeated for draw in one) <= 8


def test_forgotten_positions_leave_redis(streams: RunStreams, order: PositionOrder) -> None:
    position = partial(order.position, seed=SEED)
    source = Feed(streams, position, seed=SEED, depth=1, repeats=Repeats(0.1, half_life=1))
    for _ in range(30):
        fill(source)
        publish(streams, 1, lambda _: (0.0, 1.0))
    assert 0 < len(streams.feed_state().deviations) <= FORGOTTEN + 1


async def test_a_full_stream_is_waited_for(
    streams: RunStreams, order: PositionOrder, given_up: threading.Event
) -> None:
    waited = FEED_WAIT_S._value.get()
    async with running(feed(streams, order, depth=5), given_up):
        await eventually(lambda: streams.length("positions") == 5)
        await eventually(lambda: FEED_WAIT_S._value.get() > waited + 0.1)
        assert await asyncio.to_thread(take, streams, 5) == expected(order, range(5))
        await eventually(lambda: streams.feed_cursor() == 10)


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
        await eventually(lambda: streams.length("positions") == 5)


async def test_a_redis_that_lost_everything_is_filled_again(
    redis_server: RedisServer,
    connect: Callable[[str], RunStreams],
    given_up: threading.Event,
    order: PositionOrder,
) -> None:
    streams = connect(redis_server.url)
    async with running(feed(streams, order, depth=5), given_up):
        await eventually(lambda: streams.length("positions") == 5)
        with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
            client.flushall()
        await eventually(lambda: streams.length("positions") == 5)
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
