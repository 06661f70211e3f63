"""The users of Redis in compose and in Helm (deploy/users.acl): each can do its work, and nothing else."""

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from rookery.errors import SetupError
from rookery.shared_cache import SharedCache
from rookery.streams import RunStreams, lua
from rookery.trace import Adapter, PolicyVersion
from tests.builders import feed, group
from tests.conftest import ROOT, RedisServer

pytestmark = pytest.mark.redis

RULES = ROOT / "deploy/users.acl"
USERS = [line.split()[1] for line in RULES.read_text().splitlines()]
ADAPTER = Adapter(PolicyVersion(0, "0" * 64), "p", "m")

As = Callable[[str], RunStreams]


@pytest.fixture(scope="module")
def compose_users(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], str]:
    """What the set-up of compose writes: the first line of each user's file, and the users of Redis."""
    secrets = tmp_path_factory.mktemp("secrets")
    for _ in range(2):  # the second time nothing is missing
        subprocess.run([ROOT / "scripts/secrets.sh"], env=os.environ | {"SECRETS": str(secrets)}, check=True)
        users = {file.stem: file.read_text().splitlines()[0] for file in (secrets / "redis").iterdir()}
        out = secrets / "users.acl"
        render = [ROOT / "deploy/users.sh", RULES, secrets / "redis", out]
        rules = subprocess.run([*render, "cat", out], capture_output=True, text=True, check=True).stdout
    (secrets / "redis/feed.env").write_text("ROOKERY_REDIS_URL=my-password\n")
    refused = subprocess.run([*render, "cat", out], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "redis/feed.env: its password is not" in refused.stderr
    (secrets / "redis/feed.env").unlink()
    refused = subprocess.run([*render, "cat", out], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "feed.env is missing: type `make secrets`" in refused.stderr
    return users, rules


@pytest.fixture(params=["redis", "valkey"])
def redis_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, request.param)
    server.start()
    yield server
    server.stop()


def _has_read_only_keys(server: RedisServer) -> bool:
    """Whether it knows rules such as `%R~KEY`. The file is for Redis 7.2 or later; 6.2 can test the rest."""
    return RunStreams(server.url, "test").redis.server_version().number >= (7, 0, 0)


@pytest.fixture
def url_of(redis_server: RedisServer, compose_users: tuple[dict[str, str], str]) -> Callable[[str], str]:
    """The URL of a user of the file, whom the server knows."""
    users, rules = compose_users
    if not _has_read_only_keys(redis_server):
        rules = rules.replace("%R~", "~")
    with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
        for _, name, *own in map(
            str.split, rules.splitlines()[1:]
        ):  # the first, `default`, is the tests' own
            client.execute_command("ACL", "SETUSER", name, "reset", *own)
    return lambda name: redis_server.url.replace(
        "redis://", users[name].partition("=")[2].partition("@")[0] + "@"
    )


@pytest.fixture
def member(url_of: Callable[[str], str]) -> As:
    """The run's streams as a user of the file has them."""
    return lambda name: RunStreams(url_of(name), "test")


def test_each_service_can_do_its_work(member: As, url_of: Callable[[str], str]) -> None:
    feeding, rollouts, trainer, archive = map(member, ("feed", "rollouts", "trainer", "archive"))
    feed(feeding, 4)
    assert feeding.positions.cursor() == 4
    assert feeding.positions.length() == 4

    rollouts.agree({"group_size": 8})
    positions, traces, archived = rollouts.positions, trainer.groups, archive.archive
    assert positions.read(consumer="a", count=4, block_s=0.01) == []  # creates the group
    held = positions.read(consumer="a", count=4, block_s=0.01)
    positions.keep([entry.id for entry in held], consumer="a")
    positions.claim_idle(consumer="a", idle_s=60)
    positions.read_held(consumer="a")
    assert positions.pending() == 4
    last = positions.store_turns(held[0].id, group(0))
    assert positions.store_turns(held[0].id, group(0), number=1, after=last) == last
    assert positions.turns(held[0].id) == [(group(0), last)] * 2
    assert positions.count_fault(held[3].id) == 1
    positions.dead_letter(held[3].id, reason="test")

    archived.join(limit=8)
    assert archived.take_over(consumer="archive") == archived.epoch(consumer="archive")
    for number, entry in enumerate(held[:3]):
        assert rollouts.groups.publish(group(number), entry_id=entry.id)
    rollouts.overview()

    kept = archived.read(consumer="archive", count=3, block_s=0.01)
    archived.keep([entry.id for entry in kept], consumer="archive")
    assert archive.dead.letters() == trainer.dead.letters()
    assert archived.acknowledge([kept[0].id]) == 1  # before the trainer, and the others after it

    epoch = trainer.take_over()
    trainer.agree({"batch_groups": 2})
    trainer.policy.publish(ADAPTER, epoch=epoch)
    assert traces.read(consumer="t", count=3, block_s=0.01) == []
    groups = traces.read(consumer="t", count=3, block_s=0.01)
    traces.keep([entry.id for entry in groups], consumer="t")
    traces.claim_idle(consumer="t", idle_s=60)
    traces.of_another_reward([group(0)])
    assert traces.settle([groups[0].id, groups[1].id], result="trained", epoch=epoch) == 2
    traces.dead_letter(groups[2].id, reason="test")
    assert trainer.policy.read() == ADAPTER
    assert trainer.counts().generated == 3

    archived.claim_idle(consumer="archive", idle_s=60)
    archived.read_held(consumer="archive")
    assert archived.acknowledge([entry.id for entry in kept[1:]]) == 2
    archive.overview()

    for name in ("inference", "arena"):
        assert member(name).policy.read() == ADAPTER
    exporter = member("exporter")
    assert (exporter.overview().traces, exporter.overview().dead) == (0, 2)
    for stream in ("positions", "traces", "dead"):
        exporter.backlog(stream)
    assert exporter.redis.server_version().name in ("Redis", "Valkey")
    viewer = member("viewer")
    assert viewer.overview().dead == 2
    for letter, settle in zip(viewer.dead.letters(), (viewer.dead.replay, viewer.dead.drop), strict=True):
        assert settle(letter)
    asyncio.run(_share(url_of("reward").replace("/0", "/1")))


SCRIPTS = {
    "feed": (lua.FEED,),
    "rollouts": (
        *(lua.PUBLISH_GROUP, lua.STORE_TURNS, lua.READ_TURNS, lua.COUNT_FAULT),
        *(lua.DEAD_LETTER, lua.AGREE, lua.CLAIM),
    ),
    "trainer": (lua.TAKE_OVER, lua.AGREE, lua.PUBLISH_POLICY, lua.SETTLE, lua.DEAD_LETTER, lua.CLAIM),
    "archive": (lua.JOIN_ARCHIVE, lua.TAKE_OVER_ARCHIVE, lua.ARCHIVED, lua.CLAIM),
    "exporter": (lua.BACKLOG,),
    "viewer": (lua.BACKLOG, lua.REPLAY_DEAD),
}
"""The scripts that each user runs."""


def test_a_user_may_call_what_its_scripts_call_on_any_path() -> None:
    rules = {line.split()[1]: line.lower().split() for line in RULES.read_text().splitlines()}
    for user, scripts in SCRIPTS.items():
        may = {word[1:].partition("|")[0] for word in rules[user] if word.startswith("+")}
        assert set(re.findall(r"redis\.p?call\('(\w+)'", "".join(scripts).lower())) <= may, user


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
        ("feed", lambda streams: streams.policy.read()),
        ("rollouts", lambda streams: streams.take_over()),
        ("rollouts", lambda streams: streams.positions.cursor()),
        ("trainer", lambda streams: feed(streams, 1)),
        ("archive", lambda streams: streams.take_over()),
        ("archive", lambda streams: streams.agree({"group_size": 8})),
        ("inference", lambda streams: streams.policy.publish(ADAPTER, epoch=1)),
        ("inference", lambda streams: streams.counts()),
        ("arena", lambda streams: streams.groups.length()),
        ("exporter", lambda streams: streams.take_over()),
        ("exporter", lambda streams: streams.groups.dead_letter("1-1", reason="x")),
        ("viewer", lambda streams: streams.policy.publish(ADAPTER, epoch=1)),
        ("reward", lambda streams: streams.policy.read()),
        ("viewer", lambda streams: streams.take_over()),
    ],
)  # fmt: skip
def test_work_of_others_is_refused(member: As, name: str, call: Callable[[RunStreams], object]) -> None:
    with pytest.raises(SetupError, match="refuses the user"):
        call(member(name))


@pytest.mark.parametrize("redis_server", ["valkey"], indirect=True)  # Redis 6.2 has no such rules
@pytest.mark.parametrize("name", [name for name in USERS[1:] if name != "trainer"])
def test_only_the_trainer_can_change_the_policy_record(member: As, name: str) -> None:
    streams = member(name)
    change = "redis.call('HINCRBY', KEYS[1], 'number', 7)"
    for call in (
        lambda: streams.redis.call(lambda client: client.hincrby(streams.redis.key("policy"), "number", 7)),
        lambda: streams.redis.script(change, ["policy"]),
        lambda: streams.redis.script(change.replace("KEYS[1]", f"'{streams.redis.key('policy')}'"), []),
    ):
        with pytest.raises(SetupError, match="refuses the user"):
            call()


@pytest.mark.parametrize("name", USERS[1:])
def test_nobody_can_administer_redis(member: As, name: str) -> None:
    client = member(name).redis.client
    for command in (("CONFIG", "GET", "*"), ("FLUSHALL",), ("KEYS", "*"), ("ACL", "LIST"), ("SHUTDOWN",),
                    ("DEBUG", "SLEEP", "0"), ("MODULE", "LIST"), ("DEL", "rookery:test:policy"),
                    ("SET", "other", "1")):  # fmt: skip
        with pytest.raises(redis.ResponseError, match=r"permission|not allowed"):
            client.execute_command(*command)
