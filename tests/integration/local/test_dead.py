"""`rookery dead` on a real Redis."""

import io
import re
from contextlib import closing
from pathlib import Path

import pytest
import redis
from rich.console import Console

from launcher.dead import DeadSettings, dead
from rookery.errors import NotFound, SetupError, Unavailable
from rookery.streams import DEAD_FILE, RunStreams, dump_letters
from tests.builders import generated, read, take
from tests.conftest import RedisServer, free_port

pytestmark = pytest.mark.redis


def command(url: str, *words: str) -> str:
    console = Console(file=io.StringIO(), width=200)
    flags = ["--redis-url", url, "--run", "test"]
    assert dead(DeadSettings.parse([*words, *flags], prog="rookery dead"), console) == 0
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_dead_letters_are_shown_replayed_and_dropped(redis_url: str) -> None:
    streams = RunStreams(redis_url, "test")
    streams.archive.join(limit=10)
    assert "dead letters: none" in command(redis_url, "list")
    (position,) = take(streams, 1)
    streams.positions.dead_letter(position.id, reason="no such move")
    first, second = generated(streams, 2)
    for entry in (first, second):
        streams.groups.dead_letter(entry.id, reason="not finite [nan]")
    listed = command(redis_url, "list")
    assert "dead letters: 1 of positions, 2 of traces" in listed
    assert "not finite [nan]" in listed
    ids = [letter.id for letter in streams.dead.letters()]
    shown = command(redis_url, "show", ids[1])
    assert f"entry {first.id} of traces" in shown
    assert "TraceGroup(id='g0'" in shown

    assert command(redis_url, "replay", *ids[:2]).count("again") == 2
    assert read(streams.positions, 1)[0].data == position.data
    assert read(streams.groups, 1)[0].data == first.data
    with pytest.raises(NotFound, match=rf"no dead letter {ids[0]}.* shows all 1"):
        command(redis_url, "drop", ids[0])
    command(redis_url, "drop", "all")
    run = streams.overview()
    assert (run.dead, run.counts.dead) == (0, {"positions": 1, "traces": 2})
    assert (run.counts.generated, run.traces, run.astray, run.archive_astray) == (3, 1, 0, 0)


def test_what_to_replay_must_be_said(redis_url: str) -> None:
    with pytest.raises(SetupError, match="rookery dead replay: name entries"):
        command(redis_url, "replay")
    with pytest.raises(SetupError, match=r"takes no entries \(got 'my-run'\); --run names a run"):
        command(redis_url, "list", "my-run")


def test_a_redis_that_is_gone_or_has_no_master_is_not_waited_for(redis_server: RedisServer) -> None:
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("replica-serve-stale-data", "no")
        client.replicaof("127.0.0.1", str(free_port()))
    with pytest.raises(Unavailable, match="redis does not answer: Link with MASTER is down"):
        command(redis_server.url, "list")
    redis_server.stop()
    with pytest.raises(Unavailable, match="redis does not answer: Error 111"):
        command(redis_server.url, "list")


def test_those_of_a_run_that_has_ended_come_from_its_archive(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    with closing(RunStreams(redis_server.url, "test")) as streams:
        for entry in generated(streams, 1):
            streams.groups.dead_letter(entry.id, reason="not finite [nan]")
        (letter,) = streams.dead.letters()
    file = tmp_path / "[/archive]" / "run=test" / DEAD_FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(dump_letters([letter]))
    redis_server.stop()
    kept = ("--archive", str(tmp_path / "[/archive]"))
    listed = command(redis_server.url, "list", *kept)
    assert f"these are from {file}" in " ".join(listed.split())
    assert "dead letters: 1 of traces" in listed
    assert "TraceGroup(id='g0'" in command(redis_server.url, "show", letter.id, *kept)
    with pytest.raises(Unavailable, match=r"Error 111.*: go on with run 'test' .* to replay them"):
        command(redis_server.url, "replay", letter.id, *kept)
    file.unlink()
    with pytest.raises(Unavailable, match=f"'{re.escape(str(file))}' does not exist: go on with run 'test'"):
        command(redis_server.url, "list", *kept)


def test_a_letter_without_its_entry_is_skipped(redis_url: str) -> None:
    streams = RunStreams(redis_url, "test")
    lost, whole = generated(streams, 2)
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.xdel(streams.redis.key("traces"), lost.id)
    for entry in (lost, whole):
        streams.groups.dead_letter(entry.id, reason="a test")
    assert "its entry was lost" in command(redis_url, "show", "all")
    said = command(redis_url, "replay", "all")
    assert said.count("its entry was lost") == said.count("is in traces again") == 1
    assert [letter.data for letter in streams.dead.letters()] == [b""]
    command(redis_url, "drop", "all")
    assert not streams.dead.letters()
