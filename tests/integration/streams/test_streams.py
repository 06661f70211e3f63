"""The streams against a real Redis: what a retry, a rival, a crash and a loss of data may not do."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from rookery.codec import decode_group, decode_position
from rookery.errors import Conflict, SetupError, Unavailable
from rookery.streams import RunStreams, stream
from rookery.trace import Adapter, PolicyVersion
from tests.builders import feed, generated, group, numbered_position, publish, read, take
from tests.chaos import histories
from tests.chaos.history import record
from tests.conftest import RedisServer

pytestmark = pytest.mark.redis


@pytest.fixture
def streams(redis_url: str) -> RunStreams:
    return RunStreams(redis_url, "test")


# positions


def test_a_position_survives_the_stream(streams: RunStreams) -> None:
    (entry,) = take(streams, 1)
    assert decode_position(entry.data) == numbered_position(0)


def test_of_two_feeds_one_adds(streams: RunStreams) -> None:
    assert streams.positions.add([numbered_position(0), numbered_position(1)], cursor=0) == 2
    assert streams.positions.add([numbered_position(0)], cursor=0) == 2
    assert streams.positions.length() == 2
    assert streams.positions.cursor() == 2


# publishing


def test_publishing_twice_is_publishing_once(streams: RunStreams) -> None:
    (entry,) = take(streams, 1)
    assert publish(streams, entry, 0)
    assert not publish(streams, entry, 0)
    assert (streams.groups.length(), streams.positions.length()) == (1, 0)
    assert streams.counts().generated == 1
    assert streams.positions.pending() == 0


def test_calls_are_recorded_and_what_should_not_be_is_found(
    streams: RunStreams, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    history = tmp_path / "history.jsonl"
    request.addfinalizer(record(history))
    (entry,) = generated(streams, 1)
    old = streams.take_over()
    ids = [entry.id]
    assert streams.groups.settle(ids, result="trained", epoch=old) == 1
    streams.policy.publish(Adapter(PolicyVersion(7, "aa"), "/a", "tiny"), epoch=old)
    new = streams.take_over()
    with pytest.raises(Conflict):
        streams.groups.settle(ids, result="trained", epoch=old)
    streams.positions.add([numbered_position(1)], cursor=1)
    calls = histories.read(history)
    assert [call.event for call in calls] == ["ok"] * 6 + ["fail", "ok"]
    assert histories.violations(calls) == []

    def with_one(name: str, *args: object, **more: object) -> list[str]:
        """What is found if a call of a trainer had come through as well."""
        given = {"run": "test", "args": args, "epoch": new, **more}
        late = histories.Call(name, time.monotonic(), given, time.monotonic(), "ok", more.get("answer"))
        return histories.violations([*calls, late])

    assert with_one("settle", ["0-1"], answer=0) == []
    assert "had started before" in with_one("settle", ["0-1"], epoch=old, answer=0)[0]
    assert "version 7 was published before" in with_one("publish_policy", 6)[0]
    assert "2 times in a call of settle" in with_one("settle", ids, answer=1)[0]
    assert (
        "2 times published" in with_one("publish_group", entry_id=calls[1].given["entry_id"], answer=True)[0]
    )
    assert "2 groups were settled, of 1 positions" in with_one("settle", ["0-1"], answer=1)[0]


def test_of_two_consumers_with_one_entry_the_first_publishes(streams: RunStreams) -> None:
    (entry,) = take(streams, 1)
    (claimed,) = streams.positions.claim_idle(consumer="other", idle_s=0)
    assert claimed.id == entry.id
    assert publish(streams, claimed, 0)
    assert not publish(streams, entry, 0)
    assert streams.overview().traces == 1


def test_many_threads_publish_each_entry_once(streams: RunStreams) -> None:
    entries = take(streams, 20)
    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(lambda i: publish(streams, entries[i % 20], i % 20), range(80)))
    assert sum(won) == streams.counts().generated == streams.groups.length() == 20


def test_a_group_survives_the_stream(streams: RunStreams) -> None:
    (entry,) = generated(streams, 1)
    assert decode_group(entry.data) == group(0)


# settling


def test_settling_twice_counts_once(streams: RunStreams) -> None:
    ids = [entry.id for entry in generated(streams, 3)]
    epoch = streams.take_over()
    assert streams.groups.settle(ids[:2], result="trained", epoch=epoch) == 2
    assert streams.groups.settle(ids, result="trained", epoch=epoch) == 1
    assert streams.counts().trained == 3
    assert streams.groups.length() == 0


def test_a_fenced_trainer_changes_nothing(streams: RunStreams) -> None:
    ids = [entry.id for entry in generated(streams, 1)]
    old = streams.take_over()
    streams.take_over()
    adapter = Adapter(PolicyVersion(1, "bb"), "/a/1", "tiny")
    with pytest.raises(Conflict, match="taken over"):
        streams.groups.settle(ids, result="trained", epoch=old)
    with pytest.raises(Conflict, match="taken over"):
        streams.policy.publish(adapter, epoch=old)
    assert streams.policy.read() is None
    assert streams.counts().trained == 0
    assert streams.groups.pending() == 1


def test_a_policy_comes_back_as_it_was_published(streams: RunStreams) -> None:
    adapter = Adapter(PolicyVersion(7, "cc"), "/a/7", "tiny")
    streams.policy.publish(adapter, epoch=streams.take_over())
    assert streams.policy.read() == adapter
    assert streams.overview().committed == 7


def test_a_published_policy_says_how_many_groups_were_waiting(streams: RunStreams) -> None:
    streams.archive.join(limit=10)
    ids = [entry.id for entry in generated(streams, 5)]
    epoch = streams.take_over()
    streams.groups.settle(ids[:2], result="trained", epoch=epoch)
    streams.policy.publish(Adapter(PolicyVersion(1, "cc"), "/a/1", "tiny"), epoch=epoch)
    streams.groups.settle(ids[2:], result="trained", epoch=epoch)
    overview = streams.overview()
    assert (overview.waiting, overview.traces, overview.kept) == (3, 0, 5)


# dead letters


def test_a_dead_letter_keeps_the_entry_and_the_reason(streams: RunStreams, redis_url: str) -> None:
    (entry,) = take(streams, 1)
    streams.positions.dead_letter(entry.id, reason="no such move")
    streams.positions.dead_letter(entry.id, reason="twice")
    assert streams.counts().dead == {"positions": 1}
    assert streams.positions.length() == 0
    with redis.Redis.from_url(redis_url) as client:
        ((_, fields),) = client.xrange(streams.redis.key("dead"))
    assert fields[b"reason"] == b"no such move"
    assert (fields[b"stream"], fields[b"entry"]) == (b"positions", entry.id.encode())
    assert fields[b"data"] == entry.data


def test_faults_are_counted_until_the_entry_leaves(streams: RunStreams, redis_url: str) -> None:
    first, second = take(streams, 2)
    reborn = RunStreams(redis_url, "test")
    assert [s.positions.count_fault(first.id) for s in (streams, reborn)] == [1, 2]
    assert streams.positions.count_fault(second.id) == 1
    publish(streams, first, 0)
    streams.positions.dead_letter(second.id, reason="no such move")
    assert streams.positions.count_fault(first.id) == 0
    with redis.Redis.from_url(redis_url) as client:
        assert not client.exists(streams.redis.key("positions:faults"))


def test_turns_are_stored_once_and_leave_with_their_position(streams: RunStreams, redis_url: str) -> None:
    first, second = take(streams, 2)
    reborn = RunStreams(redis_url, "test")
    turns, others = (replace(group(number), traces=group(number).traces * 2) for number in range(2))
    store = streams.positions.store_turns
    begun, again = (s.positions.store_turns(first.id, turns) for s in (streams, reborn))
    assert begun == again != ""
    lost = [{}, {"number": 1, "after": "another turn's"}, {"number": 2, "after": begun}]  # turn 1 is lost
    for how in lost:
        with pytest.raises(Unavailable, match="other turns are stored"):
            reborn.positions.store_turns(first.id, others, **how)
    assert streams.positions.turns(first.id) == [(turns, begun)]
    assert [streams.positions.count_fault(first.id) for _ in range(2)] == [1, 2]
    store(first.id, turns)
    assert streams.positions.count_fault(first.id) == 3, "the turns were there before"
    on = store(first.id, others, slot=1, number=1, after=begun)
    assert streams.positions.count_fault(first.id) == 1, "the position can be played on"
    last = store(first.id, turns, slot=1, number=2, after=on)
    other = store(first.id, turns, slot=0, number=1, after=begun)  # episodes do not wait for each other
    assert store(second.id, others)
    stored = [(turns, begun), (turns, other), (others, on), (turns, last)]
    assert reborn.positions.turns(first.id) == stored
    publish(streams, first, 0)
    assert reborn.positions.turns(first.id) == []
    assert reborn.positions.store_turns(first.id, turns) == "", "it is settled"
    assert reborn.positions.turns(first.id) == []
    assert [turns for turns, _ in reborn.positions.turns(second.id)] == [others]
    streams.positions.dead_letter(second.id, reason="no such move")
    with redis.Redis.from_url(redis_url) as client:
        assert not client.exists(streams.redis.key("positions:turns"))
    reborn.close()


def test_the_newest_dead_letters_are_kept_and_all_are_counted(
    streams: RunStreams, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "DEAD_LIMIT", 3)
    entries = take(streams, 5)
    for number, entry in enumerate(entries):
        streams.positions.dead_letter(entry.id, reason=f"reason {number}")
    with redis.Redis.from_url(redis_url) as client:
        reasons = [fields[b"reason"] for _, fields in client.xrange(streams.redis.key("dead"))]
    assert reasons == [b"reason 2", b"reason 3", b"reason 4"]
    run = streams.overview()
    assert (run.dead, run.counts.dead, run.dead_deleted, run.astray) == (3, {"positions": 5}, 2, 0)


# the account


def test_every_generated_group_is_somewhere(streams: RunStreams) -> None:
    entries = generated(streams, 10)
    epoch = streams.take_over()
    settle = {"trained": entries[:4], "dropped:stale": entries[4:6], "dropped:uniform": entries[6:7]}
    for result, some in settle.items():
        streams.groups.settle([e.id for e in some], result=result, epoch=epoch)
    streams.groups.dead_letter(entries[7].id, reason="poison")
    run = streams.overview()
    assert run.astray == 0
    assert run.counts.dropped == {"stale": 2, "uniform": 1}
    assert (run.counts.generated, run.counts.trained, run.traces, run.dead) == (10, 4, 2, 1)
    assert run.counts.accepted == 10 - 3 - 1


def test_an_entry_that_vanishes_is_noticed(streams: RunStreams, redis_url: str) -> None:
    (entry,) = generated(streams, 1)
    with redis.Redis.from_url(redis_url) as client:
        client.xdel(streams.redis.key("traces"), entry.id)
    assert streams.overview().astray == 1


def test_a_trainer_that_starts_puts_the_account_right(streams: RunStreams, redis_url: str) -> None:
    streams.archive.join(limit=10)
    entries = generated(streams, 5)
    with redis.Redis.from_url(redis_url) as client:
        client.xdel(streams.redis.key("traces"), entries[0].id)
        client.sadd(streams.redis.key("traces:archived"), entries[1].id)
        streams.take_over()
        run = streams.overview()
        assert (run.astray, run.archive_astray, run.counts.dropped) == (0, 0, {"lost": 1})
        client.hincrby(streams.redis.key("counts"), "generated", -2)
        client.xadd(streams.redis.key("traces"), {"data": entries[0].data})
    assert streams.overview().astray == -3
    epoch = streams.take_over()
    run = streams.overview()
    assert (run.astray, run.archive_astray, run.counts.generated, run.traces) == (0, 0, 6, 5)
    before = streams.counts()
    assert streams.take_over() > epoch
    assert streams.counts() == before


# holding


def test_a_consumer_finds_what_it_held(streams: RunStreams, redis_url: str) -> None:
    held = take(streams, 3)
    reborn = RunStreams(redis_url, "test")
    assert [e.id for e in reborn.positions.read_held(consumer="c")] == [e.id for e in held]
    assert reborn.positions.read_held(consumer="other") == []


def test_a_sign_of_life_keeps_an_entry(streams: RunStreams) -> None:
    (entry,) = take(streams, 1)
    time.sleep(0.3)
    streams.positions.keep([entry.id], consumer="c")
    assert streams.positions.claim_idle(consumer="other", idle_s=0.25) == []
    time.sleep(0.3)
    (claimed,) = streams.positions.claim_idle(consumer="other", idle_s=0.25)
    assert claimed == entry


def test_a_sign_of_life_revives_nothing(streams: RunStreams) -> None:
    (entry,) = take(streams, 1)
    publish(streams, entry, 0)
    streams.positions.keep([entry.id], consumer="c")
    assert streams.positions.pending() == 0


def test_an_idle_entry_is_found_behind_those_of_the_living(streams: RunStreams, redis_url: str) -> None:
    take(streams, 200)
    feed(streams, 40)
    idle = read(streams.positions, 40, consumer="dead")
    with redis.Redis.from_url(redis_url) as client:
        ids: list[Any] = [entry.id for entry in idle]
        client.xclaim(streams.redis.key("positions"), "rollouts", "dead", 0, ids, idle=3_600_000)
    for some in (idle[:16], idle[16:32], idle[32:], []):
        assert streams.positions.claim_idle(consumer="other", idle_s=60) == some


def test_entries_of_a_deleted_consumer_are_taken_over(
    streams: RunStreams, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that it was given and has not finished; a new one stays new."""
    held = take(streams, 3)
    feed(streams, 1)
    publish(streams, held[1], 0)
    with redis.Redis.from_url(redis_url) as client:
        client.xgroup_delconsumer(streams.redis.key("positions"), "rollouts", "c")
    assert streams.positions.claim_idle(consumer="other", idle_s=60) == [held[0], held[2]]
    assert "restored 2 entries whose consumer was deleted" in caplog.text
    assert streams.positions.pending() == 2
    assert streams.positions.claim_idle(consumer="other", idle_s=60) == []
    assert len(read(streams.positions, 1, consumer="other")) == 1


def test_so_are_groups_except_those_that_one_of_two_readers_has_finished(
    streams: RunStreams, redis_url: str
) -> None:
    streams.archive.join(limit=10)
    groups = generated(streams, 3)
    assert read(streams.archive, 3) == groups
    streams.groups.settle([groups[0].id], result="trained", epoch=streams.take_over())
    streams.archive.acknowledge([groups[1].id])
    with redis.Redis.from_url(redis_url) as client:
        for reader in ("trainer", "archive"):
            client.xgroup_delconsumer(streams.redis.key("traces"), reader, "c")
    assert streams.groups.claim_idle(consumer="c", idle_s=60) == groups[1:]
    assert streams.archive.claim_idle(consumer="c", idle_s=60) == [groups[0], groups[2]]


def test_a_deleted_entry_is_not_pending_for_ever(streams: RunStreams, redis_url: str) -> None:
    """It would count as a group that is being made."""
    gone, there = take(streams, 2)
    with redis.Redis.from_url(redis_url) as client:
        client.xdel(streams.redis.key("positions"), gone.id)
    assert streams.positions.claim_idle(consumer="other", idle_s=0) == [there]
    assert streams.positions.pending() == 1


# agreement


def test_the_first_member_sets_the_terms(streams: RunStreams) -> None:
    streams.agree({"group_size": 8, "batch_groups": 32})
    streams.agree({"batch_groups": 32})
    streams.agree({"staleness": 2})
    with pytest.raises(SetupError, match="group_size is 8 in the run and 4 here"):
        streams.agree({"group_size": 4, "staleness": 2})


# losses


def test_a_lost_group_is_made_again(streams: RunStreams, redis_url: str) -> None:
    (entry,) = take(streams, 1)
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    streams.positions.keep([entry.id], consumer="c")
    assert not publish(streams, entry, 0)
    assert streams.positions.pending() == 0
    assert streams.positions.claim_idle(consumer="c", idle_s=0) == []
    assert streams.positions.read_held(consumer="c") == []
    assert len(take(streams, 2)) == 2
    assert streams.overview().astray == 0


@pytest.fixture
def patient(redis_server: RedisServer) -> Iterator[RunStreams]:
    stopping = threading.Event()
    yield RunStreams(redis_server.url, "test", stopping=stopping)
    stopping.set()


def test_a_blocked_read_outlives_a_restart(patient: RunStreams, redis_server: RedisServer) -> None:
    take(patient, 1)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(read, patient.positions, 1)
        time.sleep(0.2)
        redis_server.stop()
        time.sleep(0.5)
        redis_server.start()
        patient.positions.add([numbered_position(7)], cursor=patient.positions.cursor())
        assert [decode_position(e.data) for e in answer.result(timeout=120)] == [numbered_position(7)]


def test_what_redis_forgot_is_read_again(streams: RunStreams, redis_url: str) -> None:
    """It starts again without knowing that an entry was settled, and no call fails."""
    (entry,) = generated(streams, 1)
    held, epoch = {entry.id}, streams.take_over()

    def look() -> list[str]:
        new = streams.groups.read_new(count=1, block_s=0.01, known=lambda: held, consumer="c")
        return [found.id for found in new]

    assert look() == []
    with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        saved = {key: client.dump(key) for key in client.keys(streams.redis.key("*"))}
        streams.groups.settle([entry.id], result="trained", epoch=epoch)
        held.clear()
        for key, value in saved.items():
            client.restore(key, 0, value, replace=True)
        client.client_kill_filter(_type="normal", skipme=True)
    assert look() == [entry.id]
    assert look() == []


def test_entries_keep_their_order_when_a_reply_is_lost(
    streams: RunStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry finds another connection that works, so that no new one is made."""

    def look() -> list[str]:
        new = streams.groups.read_new(count=1, block_s=0.01, known=lambda: (), consumer="c")
        return [found.id for found in new]

    def lose_a_reply(*args: Any, **options: Any) -> None:
        monkeypatch.undo()
        streams.redis.client.xreadgroup(*args, **options)
        raise redis.ConnectionError("the reply is lost")

    assert look() == []
    first, second = (entry.id for entry in generated(streams, 2))
    monkeypatch.setattr(streams.redis.client, "xreadgroup", lose_a_reply)
    assert look() == [first, second]


def test_scripts_are_known_again_after_a_restart(patient: RunStreams, redis_server: RedisServer) -> None:
    generated(patient, 1)
    redis_server.stop()
    redis_server.start()
    assert len(generated(patient, 2)) == 2
    assert patient.overview().counts.generated == 2


def test_waiting_for_redis_ends_when_told(redis_server: RedisServer) -> None:
    stopping = threading.Event()
    streams = RunStreams(redis_server.url, "test", stopping=stopping)
    redis_server.stop()
    with pytest.raises(Unavailable, match="does not answer"):
        streams.redis.ping(once=True)
    threading.Timer(0.5, stopping.set).start()
    with pytest.raises(Unavailable, match="stopped while redis was unavailable"):
        streams.counts()
