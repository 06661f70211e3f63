"""What `rookery exporter` says of the streams, against a real Redis."""

import pytest
from prometheus_client import REGISTRY

from launcher.exporter import Exporter
from rookery.streams import RunStreams
from rookery.streams.state import Backlog
from tests.builders import read
from tests.integration.streams.test_archive_reader import join, make, settle, write
from tests.waiting import until

pytestmark = pytest.mark.redis


@pytest.fixture
def streams(redis_url: str) -> RunStreams:
    return RunStreams(redis_url, "test")


def lags(backlog: Backlog) -> dict[str, int]:
    return {group.name: group.lag for group in backlog.groups}


def pending(backlog: Backlog) -> dict[str, int]:
    return {group.name: c.pending for group in backlog.groups for c in group.consumers}


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_a_stream_that_is_not_there_has_no_backlog(streams: RunStreams) -> None:
    assert streams.backlog("traces") == Backlog(0, 0.0, ())


def test_lag_and_pending_are_each_groups_own(streams: RunStreams) -> None:
    join(streams)
    make(streams, 5)
    held = read(streams.groups, 3)
    written = read(streams.archive, 4)
    backlog = streams.backlog("traces")
    assert (backlog.length, lags(backlog)) == (5, {"trainer": 2, "archive": 1})
    assert pending(backlog) == {"trainer": 3, "archive": 4}
    settle(streams, held[:2])
    write(streams, written[2:])
    backlog = streams.backlog("traces")
    assert (backlog.length, lags(backlog)) == (5, {"trainer": 2, "archive": 1})
    assert pending(backlog) == {"trainer": 1, "archive": 2}


def test_the_oldest_entry_ages(streams: RunStreams) -> None:
    make(streams, 1)
    first = streams.backlog("traces").oldest_s
    until(lambda: streams.backlog("traces").oldest_s > first)
    settle(streams, read(streams.groups, 1))
    assert streams.backlog("traces").oldest_s == 0.0


def test_the_account_is_exported(streams: RunStreams) -> None:
    exporter = Exporter(streams, every_s=1.0)
    make(streams, 4)
    held = read(streams.groups, 4)
    settle(streams, held[:2])
    settle(streams, held[2:3], "dropped:stale")
    streams.groups.dead_letter(held[3].id, reason="poison")
    exporter.look()
    assert sample("rookery_run_groups", result="generated") == 4
    assert sample("rookery_run_groups", result="trained") == 2
    assert sample("rookery_run_groups", result="dropped:stale") == 1
    assert sample("rookery_run_groups", result="dead:traces") == 1
    assert sample("rookery_run_astray_groups") == 0
    assert sample("rookery_stream_length", stream="dead") == 1


def test_a_consumer_that_is_gone_is_no_longer_shown(streams: RunStreams, redis_url: str) -> None:
    import redis

    exporter = Exporter(streams, every_s=1.0)
    make(streams, 1)
    read(streams.groups, 1, consumer="gone")
    exporter.look()
    labels = {"stream": "traces", "group": "trainer", "consumer": "gone"}
    assert sample("rookery_stream_pending", **labels) == 1
    with redis.Redis.from_url(redis_url) as client:
        client.xgroup_delconsumer(streams.redis.key("traces"), "trainer", "gone")
    exporter.look()
    assert sample("rookery_stream_pending", **labels) is None
    assert sample("rookery_stream_consumer_idle_seconds", **labels) is None
