"""The second reader of `traces` against a real Redis: it sees every group, and the trainer never feels it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from rookery.errors import Conflict
from rookery.streams import Entry, RunStreams
from rookery.streams.run import Archive
from tests.builders import group, publish, read, take

pytestmark = pytest.mark.redis


@pytest.fixture
def streams(redis_url: str) -> RunStreams:
    return RunStreams(redis_url, "test")


def make(streams: RunStreams, count: int, *, first: int = 0) -> None:
    for number, entry in enumerate(take(streams, count), start=first):
        assert publish(streams, entry, number)


def settle(streams: RunStreams, entries: list[Entry], result: str = "trained") -> int:
    epoch = streams.take_over()
    return streams.groups.settle([e.id for e in entries], result=result, epoch=epoch)


def write(streams: RunStreams, entries: list[Entry]) -> int:
    return streams.archive.acknowledge([e.id for e in entries])


def join(streams: RunStreams, *, limit: int = 100) -> None:
    streams.archive.join(limit=limit)


def books(streams: RunStreams) -> tuple[int, int, int, int]:
    """Entries in Redis, those of them that the trainer owes, that the archive owes, and what is astray."""
    run = streams.overview()
    return streams.groups.length(), run.traces, run.unarchived, abs(run.astray) + abs(run.archive_astray)


def test_without_an_archive_nothing_is_kept(streams: RunStreams) -> None:
    make(streams, 3)
    settle(streams, read(streams.groups, 3))
    assert books(streams) == (0, 0, 0, 0)
    assert streams.overview().counts.archive == {}


def test_a_settled_group_waits_for_the_archive(streams: RunStreams) -> None:
    join(streams)
    make(streams, 3)
    assert settle(streams, read(streams.groups, 3)) == 3
    assert books(streams) == (3, 0, 3, 0)
    entries = read(streams.archive, 3)
    assert [e.data for e in entries] == [e.data for e in sorted(entries, key=lambda e: e.id)]
    assert write(streams, entries) == 3
    assert books(streams) == (0, 0, 0, 0)
    assert streams.counts().archive == {"before": 0, "archived": 3}


def test_an_archived_group_waits_for_the_trainer(streams: RunStreams) -> None:
    join(streams)
    make(streams, 3)
    write(streams, read(streams.archive, 3))
    assert books(streams) == (3, 3, 0, 0)
    held = read(streams.groups, 3)
    settle(streams, held[:1], "dropped:stale")
    streams.groups.dead_letter(held[1].id, reason="poison")
    assert books(streams) == (1, 1, 0, 0)
    settle(streams, held[2:])
    assert books(streams) == (0, 0, 0, 0)
    assert streams.overview().dead == 1


def test_the_archive_sees_what_was_dropped_and_what_was_dead(streams: RunStreams) -> None:
    join(streams)
    make(streams, 2)
    held = read(streams.groups, 2)
    settle(streams, held[:1], "dropped:stale")
    streams.groups.dead_letter(held[1].id, reason="poison")
    assert [e.id for e in read(streams.archive, 2)] == [e.id for e in held]
    assert books(streams) == (2, 0, 2, 0)
    assert streams.counts().dead == {"traces": 1}


def test_saying_so_twice_counts_once(streams: RunStreams) -> None:
    join(streams)
    make(streams, 2)
    entries = read(streams.archive, 2)
    assert (write(streams, entries), write(streams, entries)) == (2, 0)
    held = read(streams.groups, 2)
    assert (settle(streams, held), settle(streams, held)) == (2, 0)
    assert books(streams) == (0, 0, 0, 0)


def test_an_archive_that_is_away_keeps_no_more_than_its_limit(streams: RunStreams) -> None:
    join(streams, limit=4)
    make(streams, 10)
    settle(streams, read(streams.groups, 10))
    assert books(streams) == (4, 0, 4, 0)
    assert streams.counts().archive == {"before": 0, "missed": 6}
    assert write(streams, read(streams.archive, 4)) == 4
    assert books(streams) == (0, 0, 0, 0)


def test_what_the_archive_holds_is_not_taken_away(streams: RunStreams) -> None:
    join(streams, limit=1)
    make(streams, 5)
    held = read(streams.archive, 5)
    settle(streams, read(streams.groups, 5))
    assert books(streams) == (5, 0, 5, 0)
    assert write(streams, held) == 5
    assert books(streams) == (0, 0, 0, 0)


def test_an_archive_that_comes_late_takes_what_is_left(streams: RunStreams) -> None:
    make(streams, 4)
    held = read(streams.groups, 4)
    settle(streams, held[:1])
    join(streams)
    settle(streams, held[1:2])
    assert len(read(streams.archive, 3)) == 3
    assert books(streams) == (3, 2, 3, 0)
    assert streams.counts().archive == {"before": 1}


def test_joining_again_changes_the_limit_alone(streams: RunStreams) -> None:
    join(streams, limit=1)
    make(streams, 3)
    settle(streams, read(streams.groups, 2)[:2])
    join(streams, limit=5)
    assert books(streams) == (2, 1, 2, 0)
    assert streams.counts().archive == {"before": 0, "missed": 1}


def test_a_run_has_one_archive(streams: RunStreams) -> None:
    join(streams)
    other = Archive(streams.redis, group="other")
    with pytest.raises(Conflict, match="run 'test' already has an archive, which is not 'other'"):
        other.join(limit=1)
    assert other.pending() == 0


def test_a_trainer_whose_group_is_made_anew_counts_nothing_again(streams: RunStreams, redis_url: str) -> None:
    join(streams)
    make(streams, 2)
    settle(streams, read(streams.groups, 2))
    with redis.Redis.from_url(redis_url) as client:
        client.xgroup_setid(streams.redis.key("traces"), "trainer", "0")
    assert settle(streams, read(streams.groups, 2)) == 0
    assert books(streams) == (2, 0, 2, 0)
    assert streams.counts().trained == 2


def test_a_lost_archive_group_endangers_no_trainer(streams: RunStreams, redis_url: str) -> None:
    join(streams, limit=1)
    make(streams, 3)
    with redis.Redis.from_url(redis_url) as client:
        client.xgroup_destroy(streams.redis.key("traces"), "archive")
    assert settle(streams, read(streams.groups, 3)) == 3
    assert len(read(streams.archive, 1)) == 1
    assert books(streams) == (1, 0, 1, 0)


def test_both_readers_at_once(streams: RunStreams) -> None:
    join(streams)
    make(streams, 60)
    epoch = streams.take_over()
    trainer = [e.id for e in read(streams.groups, 60)]
    archive = [e.id for e in read(streams.archive, 60)]

    def one(number: int) -> int:
        if number % 2:
            return streams.archive.acknowledge([archive[number // 2]])
        return streams.groups.settle([trainer[number // 2]], result="trained", epoch=epoch)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(one, [*range(120), *range(120)])) == 120
    assert books(streams) == (0, 0, 0, 0)
    run = streams.overview()
    assert (run.kept, run.archived_ahead, run.counts.archive["archived"]) == (0, 0, 60)


def test_a_group_made_twice_is_archived_twice_and_says_so(streams: RunStreams) -> None:
    join(streams)
    (first, second) = take(streams, 2)
    publish(streams, first, 0)
    streams.groups.publish(group(0), entry_id=second.id)
    entries = read(streams.archive, 2)
    assert (write(streams, entries), books(streams)) == (2, (2, 2, 0, 0))
