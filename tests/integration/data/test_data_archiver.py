"""The archiver against a real Redis: every group in a file, once, whoever dies and whatever is away."""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from chess_datasets.store.folders import Folder, OutputFile, open_folder
from chess_datasets.store.parquet import describe, read_rows
from chess_datasets.traces.archive import FileLimits, TraceArchive
from rookery.codec import encode_group
from rookery.errors import Conflict, SetupError, Unavailable
from rookery.metrics import ARCHIVE_MISSED, ARCHIVE_WAITING, ARCHIVE_WRITABLE
from rookery.streams import DEAD_FILE, DeadLetter, RunStreams, load_letters
from services.data.archiver import Archiver
from tests.builders import read
from tests.conftest import RedisServer
from tests.integration.data.producer import make, settle_all
from tests.unit.rookery.records import GROUP
from tests.waiting import until

pytestmark = pytest.mark.redis

SMALL = FileLimits(groups=4, age_s=0.05)


@pytest.fixture
def stopping() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def streams(redis_url: str, stopping: threading.Event) -> Iterator[RunStreams]:
    with contextlib.closing(RunStreams(redis_url, "r1", stopping=stopping)) as streams:
        yield streams


@pytest.fixture(params=["disk", "s3"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> TraceArchive:
    place = tmp_path / "archive" if request.param == "disk" else request.getfixturevalue("bucket")
    return TraceArchive(open_folder(place))


@pytest.fixture
def on_disk(tmp_path: Path) -> TraceArchive:
    return TraceArchive(open_folder(tmp_path / "archive"))


@contextlib.contextmanager
def running(archiver: Archiver, stopping: threading.Event | None = None) -> Iterator[None]:
    stopping = stopping or threading.Event()
    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(archiver.run, stopping)
        try:
            yield
        finally:
            stopping.set()
            work.result(timeout=60)


def until_archived(streams: RunStreams, count: int) -> None:
    until(lambda: streams.counts().archive.get("archived", 0) >= count)


def once(streams: RunStreams, archive: TraceArchive, **how: object) -> None:
    """One life of an archiver that finds what is there, writes it and ends."""
    archiver = Archiver(streams, archive, **{"limits": SMALL, **how})  # type: ignore[arg-type]
    owed = streams.overview().unarchived
    done = streams.counts().archive.get("archived", 0)
    with running(archiver):
        until_archived(streams, done + owed)


def test_every_group_comes_back_as_it_was_published(streams: RunStreams, archive: TraceArchive) -> None:
    published = make(streams, 11)
    once(streams, archive)
    assert list(archive.groups(run="r1")) == published
    assert len(archive.files()) == 3
    settle_all(streams)
    run = streams.overview()
    assert (run.astray, run.archive_astray, streams.groups.length()) == (0, 0, 0)


def test_the_settled_and_the_dropped_are_there_too(streams: RunStreams, on_disk: TraceArchive) -> None:
    streams.archive.join(limit=100)
    published = make(streams, 3)
    settle_all(streams, "trained")
    published += make(streams, 3, first=3)
    settle_all(streams, "dropped:stale")
    once(streams, on_disk)
    assert list(on_disk.groups()) == published
    assert streams.groups.length() == 0


def test_of_two_with_one_name_the_later_takes_over(
    streams: RunStreams, on_disk: TraceArchive, stopping: threading.Event
) -> None:
    first = Archiver(streams, on_disk, limits=FileLimits(groups=4, age_s=1000))
    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(first.run, stopping)
        published = make(streams, 3)
        until(lambda: streams.archive.pending() == 3)
        second = Archiver(streams, on_disk, limits=SMALL)
        with running(second):
            until_archived(streams, 3)
            published += make(streams, 9, first=3)
            with pytest.raises(Conflict, match="another archiver 'archive' of run 'r1' has taken over"):
                work.result(timeout=60)
    once(streams, on_disk, idle_s=0.0)  # what the first was given after that, if anything
    assert list(on_disk.groups()) == published
    assert sum(describe(on_disk.folder, file.name).rows for file in on_disk.files()) == 12
    assert streams.counts().archive["archived"] == 12


def test_a_redis_that_forgot_the_archive_is_joined_again(
    streams: RunStreams, redis_url: str, on_disk: TraceArchive
) -> None:
    archiver = Archiver(streams, on_disk, limits=SMALL)
    with running(archiver):
        until(lambda: streams.archive.epoch(consumer="archive"))
        with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
            client.flushall()
        published = make(streams, 3)
        until_archived(streams, 3)
    assert list(on_disk.groups()) == published


def test_what_is_young_waits_and_a_stop_writes_it(
    streams: RunStreams, on_disk: TraceArchive, stopping: threading.Event
) -> None:
    archiver = Archiver(streams, on_disk, limits=FileLimits(groups=100, age_s=1000))
    with running(archiver, stopping):
        published = make(streams, 3)
        until(lambda: streams.archive.pending() == 3)
        assert on_disk.files() == []
    assert list(on_disk.groups()) == published


def test_a_file_ends_when_its_groups_are_large(streams: RunStreams, on_disk: TraceArchive) -> None:
    make(streams, 6)
    once(streams, on_disk, limits=FileLimits(groups=100, size=2 * len(encode_group(GROUP)), age_s=0.05))
    sizes = [len(list(read_rows(on_disk.folder, file.name, ("entry",)))) for file in on_disk.files()]
    assert sizes == [2, 2, 2]


class DiesAfterWriting(TraceArchive):
    """Stands for a kill between the file and its acknowledgement."""

    def write(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
        super().write(*args, **kwargs)  # type: ignore[arg-type]
        raise KeyboardInterrupt


def test_what_was_written_and_not_acknowledged_is_not_written_again(
    streams: RunStreams, archive: TraceArchive
) -> None:
    published = make(streams, 4)
    with pytest.raises(KeyboardInterrupt):
        Archiver(streams, DiesAfterWriting(archive.folder), limits=SMALL).run(threading.Event())
    assert streams.archive.pending() == 4
    published += make(streams, 3, first=4)
    once(streams, archive, limits=FileLimits(groups=100, age_s=0.05))
    assert list(archive.groups()) == published
    on_file = [len(list(read_rows(archive.folder, file.name, ("entry",)))) for file in archive.files()]
    assert on_file == [4, 3]
    assert streams.counts().archive == {"before": 0, "archived": 7}
    assert streams.archive.pending() == 0


def test_a_day_ends_a_file(streams: RunStreams, on_disk: TraceArchive, redis_url: str) -> None:
    streams.archive.join(limit=100)
    midnight = 1763769600000
    with redis.Redis.from_url(redis_url) as client:
        for moment in (midnight - 2, midnight - 1, midnight, midnight + 1):
            group = replace(GROUP, id=f"g{moment}")
            client.xadd(streams.redis.key("traces"), {"data": encode_group(group)}, id=f"{moment}-0")
    once(streams, on_disk)
    assert [file.name.split("/")[1] for file in on_disk.files()] == ["date=2025-11-21", "date=2025-11-22"]
    assert len(list(on_disk.groups())) == 4


def test_what_cannot_be_read_is_counted_and_spares_the_others(
    streams: RunStreams, on_disk: TraceArchive, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    streams.archive.join(limit=100)
    published = make(streams, 1)
    with redis.Redis.from_url(redis_url) as client:
        client.xadd(streams.redis.key("traces"), {"data": b"\xff\xff"})
    published += make(streams, 1, first=1)
    with running(Archiver(streams, on_disk, limits=SMALL)):
        until_archived(streams, 2)
    assert list(on_disk.groups()) == published
    assert streams.counts().archive["unreadable"] == 1
    assert "cannot be archived: 2 bytes are not a rookery.v1.TraceGroup" in caplog.text


def test_an_archiver_that_is_gone_is_taken_over(
    streams: RunStreams, on_disk: TraceArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.data.archiver.HEARTBEAT_S", 0.1)
    streams.archive.join(limit=100)
    published = make(streams, 3)
    streams.archive.read(consumer="gone", count=3, block_s=1.0)
    once(streams, on_disk, consumer="other", idle_s=0.0)
    assert list(on_disk.groups()) == published


def test_a_group_that_redis_lost_and_that_is_made_again_is_archived_once(
    streams: RunStreams, archive: TraceArchive, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    published = make(streams, 6)
    once(streams, archive)
    with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        client.flushall()  # as a Redis without its last second
    streams.archive.join(limit=100)
    make(streams, 2, first=3)
    published += make(streams, 1, first=6)
    make(streams, 1, first=6)
    with running(Archiver(streams, archive, limits=SMALL)):
        until_archived(streams, 1)
        until(lambda: not streams.overview().unarchived)
    assert list(archive.groups()) == published
    assert streams.counts().archive == {"before": 0, "archived": 1, "duplicate": 3}
    assert (streams.overview().astray, streams.overview().archive_astray) == (0, 0)
    assert "group g3 is in the archive as entry" in caplog.text


def test_entries_that_redis_delivers_again_are_archived_once(
    streams: RunStreams, on_disk: TraceArchive, redis_url: str
) -> None:
    key = streams.redis.key("traces")
    streams.archive.join(limit=100)
    make(streams, 3)
    with (
        contextlib.closing(redis.Redis.from_url(redis_url)) as client,
        running(Archiver(streams, on_disk, limits=FileLimits(groups=2, age_s=3600.0))),
    ):
        until_archived(streams, 2)  # the third is held for the next file
        entries = [entry.decode() for entry, _ in client.xrange(key)]
        with client.pipeline() as lost:  # as if its last second had not been
            lost.xack(key, "archive", *entries)
            lost.xgroup_setid(key, "archive", "0")
            lost.delete(f"{key}:archived")
            lost.hdel(streams.redis.key("counts"), "archive:archived")
            lost.execute()
        until_archived(streams, 2)
    files = [
        [row["entry"] for row in read_rows(on_disk.folder, file.name, ("entry",))] for file in on_disk.files()
    ]
    assert [entry for file in files for entry in file] == entries
    assert streams.counts().archive == {"before": 0, "archived": 3}


def test_the_newest_groups_are_known_by_id(on_disk: TraceArchive) -> None:
    for file in range(4):
        entries = [f"176376000000{file}-{number}" for number in range(3)]
        groups = [(entry, replace(GROUP, id=f"g{file}{number}")) for number, entry in enumerate(entries)]
        on_disk.write("r1", groups, first=entries[0], last=entries[-1])
    known = on_disk.newest("r1", count=4)
    assert list(known) == ["g20", "g21", "g22", "g30", "g31", "g32"]
    assert known["g31"] == "1763760000003-1"
    assert on_disk.newest("r2", count=4) == {}


class Away(Folder):
    """A store that does not answer the first times."""

    def __init__(self, folder: Folder, failures: int, *, unlisted: int = 0) -> None:
        self.url, self._folder, self.failures = folder.url, folder, failures
        self.unlisted = unlisted

    def write(self, name: str) -> contextlib.AbstractContextManager[OutputFile]:  # type: ignore[override]
        if self.failures:
            self.failures -= 1
            raise Unavailable("no route to the bucket")
        return self._folder.write(name)

    def _open(self, name: str) -> Any:
        return self._folder._open(name)

    def remove(self, name: str) -> None:
        self._folder.remove(name)

    def names(self, *, below: str = "", suffix: str = "") -> list[str]:
        if self.unlisted:
            self.unlisted -= 1
            raise Unavailable("no route to the bucket")
        return self._folder.names(below=below, suffix=suffix)


def test_a_store_that_is_away_is_waited_for_and_told_once(
    streams: RunStreams,
    on_disk: TraceArchive,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("services.data.archiver.STORE_RETRY_S", 0.05)
    caplog.set_level(logging.INFO, "services.data.archiver")
    published = make(streams, 2)
    away = Away(on_disk.folder, failures=3, unlisted=3)
    once(streams, TraceArchive(away))
    assert away.failures == 0
    assert list(on_disk.groups()) == published
    told = [
        record.levelname
        for record in caplog.records
        if "the archive can" in record.getMessage() or "to the archive" in record.getMessage()
    ]
    assert told == ["ERROR", "INFO"] * 2  # at the start, and at the first file
    assert ARCHIVE_WRITABLE._value.get() == 1.0


class HardToSearch(TraceArchive):
    """Every other search for entries fails."""

    searches = 0

    def archived_entries(self, run: str, entries: Sequence[str]) -> set[str]:
        self.searches += 1
        if self.searches % 2:
            raise Unavailable("no route to the bucket")
        return super().archived_entries(run, entries)


def test_a_store_that_is_away_while_entries_are_looked_up_is_waited_for(
    streams: RunStreams, on_disk: TraceArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.data.archiver.STORE_RETRY_S", 0.05)
    monkeypatch.setattr("services.data.archiver.HEARTBEAT_S", 0.1)
    streams.archive.join(limit=100)
    published = make(streams, 3)
    streams.archive.read(consumer="archive", count=1, block_s=1.0)
    streams.archive.read(consumer="gone", count=2, block_s=1.0)
    archive = HardToSearch(on_disk.folder)
    once(streams, archive, idle_s=0.0)
    assert archive.searches >= 4
    assert list(on_disk.groups()) == published


def test_a_stop_while_the_store_is_away_loses_nothing(
    streams: RunStreams, on_disk: TraceArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = make(streams, 2)
    archiver = Archiver(streams, TraceArchive(Away(on_disk.folder, failures=10**6)), limits=SMALL)
    with running(archiver):
        until(lambda: archiver.trouble)
        assert archiver.trouble == "no route to the bucket"
        assert ARCHIVE_WRITABLE._value.get() == 0.0
    assert on_disk.files() == []
    once(streams, on_disk)
    assert list(on_disk.groups()) == published


def test_no_bucket_is_an_error(streams: RunStreams, s3_environment: dict[str, str]) -> None:
    make(streams, 1)
    archive = TraceArchive(open_folder("s3://nowhere/at/all"))
    with pytest.raises(SetupError, match="cannot list 's3://nowhere/at/all': "):
        Archiver(streams, archive, limits=SMALL).run(threading.Event())


def test_a_redis_that_lost_everything_is_joined_again(
    redis_server: RedisServer,
    on_disk: TraceArchive,
    stopping: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.data.archiver.HEARTBEAT_S", 0.1)
    streams = RunStreams(redis_server.url, "r1", stopping=stopping)
    with contextlib.closing(streams), running(Archiver(streams, on_disk, limits=SMALL), stopping):
        make(streams, 2)
        until_archived(streams, 2)
        redis_server.stop()
        redis_server.start()
        until(lambda: streams.counts().archive)
        make(streams, 2, first=2)
        settle_all(streams)
        until_archived(streams, 2)
    assert [group.id for group in on_disk.groups()] == ["g0", "g1", "g2", "g3"]


def test_dead_letters_are_kept_as_they_are_now(
    redis_server: RedisServer, archive: TraceArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.data.archiver.HEARTBEAT_S", 0.1)

    def kept() -> list[DeadLetter]:
        with contextlib.suppress(Unavailable):  # a bucket's file that is replaced while it is read
            (tmp_path / "copy").write_bytes(archive.folder.read_bytes(f"run=r1/{DEAD_FILE}"))
            return load_letters(tmp_path / "copy")
        return []

    with contextlib.closing(RunStreams(redis_server.url, "r1")) as streams:
        make(streams, 3)
        once(streams, archive)
        assert kept() == [], "a run that had none says so"
        with running(Archiver(streams, archive, limits=SMALL)):
            first, second, third = read(streams.groups, 3)
            for entry in (first, second):
                streams.groups.dead_letter(entry.id, reason="not finite")
            until(lambda: len(kept()) == 2)
            letters = streams.dead.letters()
            assert kept() == letters
            assert streams.dead.replay(letters[0])
            until(lambda: kept() == letters[1:])
            monkeypatch.setattr("services.data.archiver.DEAD_BYTES", len(third.data))
            streams.groups.dead_letter(third.id, reason="not finite")
            until(lambda: [letter.data for letter in kept()] == [b"", third.data])
        before = kept()
        redis_server.stop()
        redis_server.start()
        once(streams, archive)
        assert kept() == before, "a Redis that has lost everything knows less"


def test_what_was_missed_is_shown(streams: RunStreams, on_disk: TraceArchive) -> None:
    streams.archive.join(limit=2)
    make(streams, 5)
    settle_all(streams)
    once(streams, on_disk, keep=2)
    assert ARCHIVE_MISSED._value.get() == 3
    assert ARCHIVE_WAITING._value.get() == 2
    assert [group.id for group in on_disk.groups()] == ["g0", "g1"]
    assert streams.overview().archive_astray == 0
