"""The Redis users of the Helm chart (files/users.acl): each can do its own work, and nothing else."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
import redis

from rookery.errors import SetupError
from rookery.shared_cache import SharedCache
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion
from tests.builders import feed, group
from tests.conftest import ROOT, RedisServer

pytestmark = pytest.mark.redis

USERS = {
    name: rules
    for _, name, *rules in map(
        str.split, (ROOT / "deploy/helm/rookery/files/users.acl").read_text().splitlines()
    )
}
ADAPTER = Adapter(PolicyVersion(0, "0" * 64), "p", "m")

As = Callable[[str], RunStreams]


@pytest.fixture
def member(redis_server: RedisServer) -> As:
    """The run's streams as a user of the file has them."""
    with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
        for name in USERS.keys() - {"default"}:  # the tests' own
            rules = [f">{name}" if rule == f">@{name}@" else rule for rule in USERS[name]]
            client.execute_command("ACL", "SETUSER", name, *rules)
    return lambda name: RunStreams(redis_server.url.replace("://", f"://{name}:{name}@"), "test")


def test_each_service_can_do_its_work(member: As, redis_server: RedisServer) -> None:
    feeding, rollouts, trainer, archive = map(member, ("feed", "rollouts", "trainer", "archive"))
    feed(feeding, 4)
    feeding.feed_state()
    feeding.forget_deviations([1])
    assert feeding.length("positions") == 4

    rollouts.agree({"group_size": 8})
    reads = {"group": "rollouts", "consumer": "a"}
    assert rollouts.read("positions", **reads, count=4, block_s=0.01) == []  # creates the group
    held = rollouts.read("positions", **reads, count=4, block_s=0.01)
    rollouts.keep("positions", [entry.id for entry in held], **reads)
    rollouts.claim_idle("positions", **reads, idle_s=60)
    rollouts.read_held("positions", **reads)
    assert rollouts.pending("positions", group="rollouts") == 4
    assert rollouts.count_fault("positions", held[3].id, group="rollouts") == 1
    rollouts.dead_letter("positions", held[3].id, group="rollouts", reason="test")

    archive.join_archive(group="archive", limit=8)
    assert archive.take_over_archive(consumer="archive") == archive.archive_epoch(consumer="archive")
    for number, entry in enumerate(held[:3]):
        assert rollouts.publish_group(group(number), entry_id=entry.id, consumer_group="rollouts")
    rollouts.overview()

    epoch = trainer.take_over()
    trainer.agree({"batch_groups": 2})
    trainer.publish_policy(ADAPTER, epoch=epoch)
    work = {"group": "trainer", "consumer": "t"}
    assert trainer.read("traces", **work, count=3, block_s=0.01) == []
    groups = trainer.read("traces", **work, count=3, block_s=0.01)
    trainer.keep("traces", [entry.id for entry in groups], **work)
    trainer.claim_idle("traces", **work, idle_s=60)
    trainer.of_another_reward([group(0)])
    assert trainer.settle([groups[0].id, groups[1].id], group="trainer", result="trained", epoch=epoch) == 2
    trainer.dead_letter("traces", groups[2].id, group="trainer", reason="test")
    assert trainer.policy() == ADAPTER
    assert trainer.counts().generated == 3

    keeps = {"group": "archive", "consumer": "archive"}
    kept = archive.read("traces", **keeps, count=3, block_s=0.01)
    archive.keep("traces", [entry.id for entry in kept], **keeps)
    archive.claim_idle("traces", **keeps, idle_s=60)
    archive.read_held("traces", **keeps)
    assert archive.archived([entry.id for entry in kept], group="archive") == 3
    archive.overview()

    for name in ("inference", "arena"):
        assert member(name).policy() == ADAPTER
    exporter = member("exporter")
    assert (exporter.overview().traces, exporter.overview().dead) == (0, 2)
    for stream in ("positions", "traces", "dead"):
        exporter.backlog(stream)
    viewer = member("viewer")
    assert viewer.overview().dead == 2
    assert all(viewer.replay_dead(letter) for letter in viewer.dead_letters())
    assert exporter.server_version().name in ("Redis", "Valkey")
    asyncio.run(_share(redis_server.url.replace("://", "://reward:reward@").replace("/0", "/1")))


async def _share(url: str) -> None:
    cache = SharedCache(url)
    cache.put("a", b"1")
    await cache.close()
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        assert client.mget("rookery:reward:a") == [b"1"]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("feed", lambda streams: streams.take_over()),
        ("feed", lambda streams: streams.policy()),
        ("rollouts", lambda streams: streams.take_over()),
        ("rollouts", lambda streams: streams.feed_state()),
        ("trainer", lambda streams: feed(streams, 1)),
        ("archive", lambda streams: streams.take_over()),
        ("archive", lambda streams: streams.agree({"group_size": 8})),
        ("inference", lambda streams: streams.publish_policy(ADAPTER, epoch=1)),
        ("inference", lambda streams: streams.counts()),
        ("arena", lambda streams: streams.length("traces")),
        ("exporter", lambda streams: streams.take_over()),
        ("exporter", lambda streams: streams.dead_letter("traces", "1-1", group="trainer", reason="x")),
        ("viewer", lambda streams: streams.take_over()),
        ("viewer", lambda streams: streams.publish_policy(ADAPTER, epoch=1)),
        ("reward", lambda streams: streams.policy()),
    ],
)  # fmt: skip
def test_work_of_others_is_refused(member: As, name: str, call: Callable[[RunStreams], object]) -> None:
    with pytest.raises(SetupError, match="refuses the user"):
        call(member(name))


@pytest.mark.parametrize("name", sorted(set(USERS) - {"default"}))
def test_nobody_can_administer_redis(member: As, name: str) -> None:
    client = member(name)._redis
    for command in (("CONFIG", "GET", "*"), ("FLUSHALL",), ("KEYS", "*"), ("ACL", "LIST"), ("SHUTDOWN",),
                    ("DEBUG", "SLEEP", "0"), ("MODULE", "LIST"), ("DEL", "rookery:test:policy"),
                    ("SET", "other", "1")):  # fmt: skip
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command)
