"""Stores the groups of runs in Parquet files, partitioned by run and day.

    run=r1/date=2026-11-21/1763721014000-0_1763721019000-3.parquet
    run=r1/dead.jsonl

A Parquet file is named after its first and last stream entry, so writing the same entries again replaces it.
The other one has the dead letters that the run has now. This module does not access Redis.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from heapq import merge
from typing import Any, Self

from chess_datasets.store.folders import Folder, WrittenFile
from chess_datasets.store.parquet import SUFFIX, Kind, describe, read_records, read_rows, write_records
from rookery.errors import InvalidInput, SetupError
from rookery.streams import DEAD_FILE, DeadLetter, Entry, dump_letters
from rookery.trace import TRACE_VERSION, TraceGroup

StreamId = tuple[int, int]
"""A stream id as numbers: milliseconds since 1970, and the sequence number within the millisecond."""


@dataclass(frozen=True, slots=True)
class ArchivedGroup(TraceGroup):
    """A group as stored in the archive. `entry` is its id in the stream, unique within the run."""

    entry: str = ""

    @classmethod
    def of(cls, group: TraceGroup, *, entry: str) -> Self:
        return cls(**{field.name: getattr(group, field.name) for field in fields(group)}, entry=entry)

    @property
    def group(self) -> TraceGroup:
        return TraceGroup(**{field.name: getattr(self, field.name) for field in fields(TraceGroup)})


def _with_turns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of version 1, in which each trace was one turn."""
    traces = [
        {"id": trace["id"], "turns": [{key: trace[key] for key in ("completion", "verdict")}]}
        for trace in row["traces"]
    ]
    return row | {"traces": traces}


GROUPS = Kind("groups", TraceGroup, version=TRACE_VERSION, rows=32, older={"1": _with_turns})
ARCHIVED = Kind("groups", ArchivedGroup, version=TRACE_VERSION, rows=32, older={"1": _with_turns})
"""The same kind with one more column. A reader of groups can read these files, too."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of the archive, and the ids of its first and last stream entry."""

    name: str
    run: str
    first: StreamId
    last: StreamId


class TraceArchive:
    """An archive of runs in a folder, here or in a bucket."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def write(
        self, run: str, groups: Iterable[tuple[str, TraceGroup]], *, first: str, last: str
    ) -> WrittenFile:
        """Writes groups with their entry ids, sorted from `first` to `last`, all of one day."""
        name = f"run={run}/date={day_of(first)}/{first}_{last}{SUFFIX}"
        records = (ArchivedGroup.of(group, entry=entry) for entry, group in groups)
        return write_records(self.folder, name, ARCHIVED, records, notes={"run": run})

    def write_dead(self, run: str, letters: Sequence[DeadLetter]) -> WrittenFile:
        """Writes the dead letters of a run, in place of those that are there."""
        return self.folder.write_bytes(f"run={run}/{DEAD_FILE}", dump_letters(letters))

    def has_dead(self, run: str) -> bool:
        """Whether the dead letters of a run were ever written."""
        try:
            with self.folder.read(f"run={run}/{DEAD_FILE}"):
                return True
        except SetupError:
            return False

    def archived_entries(self, run: str, entries: Sequence[str]) -> set[str]:
        """Those of the stream entries that are already in the archive."""
        archived: set[str] = set()
        for day in {day_of(entry) for entry in entries}:
            entries_of_day = {entry for entry in entries if day_of(entry) == day}
            for file in self._files(f"run={run}/date={day}"):
                if any(file.first <= stream_id(entry) <= file.last for entry in entries_of_day):
                    rows = read_rows(self.folder, file.name, ("entry",))
                    archived.update(entries_of_day.intersection(row["entry"] for row in rows))
        return archived

    def newest(self, run: str, *, count: int) -> dict[str, str]:
        """The entry ids of at least the last `count` groups of a run, by group id, in stream order."""
        pairs_of_files: list[list[tuple[str, str]]] = []
        for file in reversed(self._files(f"run={run}")):
            if sum(map(len, pairs_of_files)) >= count:
                break
            rows = read_rows(self.folder, file.name, ("id", "entry"))
            pairs_of_files.append([(row["id"], row["entry"]) for row in rows])
        return dict(pair for pairs in reversed(pairs_of_files) for pair in pairs)

    def runs(self) -> list[str]:
        return sorted({file.run for file in self._files("")})

    def files(self, *, run: str | None = None) -> list[ArchiveFile]:
        """The files of a run, or of all runs, in the order of their groups."""
        return self._files("" if run is None else f"run={run}")

    def count(self, *, run: str | None = None) -> int:
        """The number of groups of a run, or of all runs."""
        return sum(describe(self.folder, file.name).rows for file in self.files(run=run))

    def groups(self, *, run: str | None = None) -> Iterator[TraceGroup]:
        """Yields every group in stream order, run after run. If two archivers shared a run, its files
        overlap. Even then, each entry is yielded once and in order."""
        for cluster in _clusters(self.files(run=run)):
            if len(cluster) == 1:
                yield from read_records(self.folder, cluster[0].name, GROUPS)
            else:
                yield from self._merged(cluster)

    def _merged(self, cluster: Sequence[ArchiveFile]) -> Iterator[TraceGroup]:
        """The groups of overlapping files in order, each entry once."""
        entries: set[str] = set()
        readers = (read_records(self.folder, file.name, ARCHIVED) for file in cluster)
        for record in merge(*readers, key=lambda record: stream_id(record.entry)):
            if record.entry not in entries:
                entries.add(record.entry)
                yield record.group

    def _files(self, below: str) -> list[ArchiveFile]:
        files = [_file(name) for name in self.folder.names(below=below, suffix=SUFFIX)]
        return sorted(files, key=lambda file: (file.run, file.first, file.last))


def stream_id(entry: str) -> StreamId:
    """A stream id as numbers, which sort in the order of the stream.

    >>> stream_id("1763721014000-12") > stream_id("1763721014000-9")
    True
    """
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence)


def day_of(entry: str) -> str:
    """The UTC day on which Redis received an entry.

    >>> day_of("1763721014000-0")
    '2025-11-21'
    """
    return datetime.fromtimestamp(stream_id(entry)[0] / 1000, UTC).date().isoformat()


@dataclass(frozen=True, slots=True)
class FileLimits:
    """A file is written at this many groups or bytes, or this long after its first group arrived."""

    groups: int = 256
    size: int = 64 << 20
    age_s: float = 60.0


@dataclass(slots=True)
class FileBatch:
    """The entries held for the next file. All are of the same day."""

    limits: FileLimits
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    since: float = 0.0

    @property
    def full(self) -> bool:
        return len(self.entries) >= self.limits.groups or self.size >= self.limits.size

    @property
    def due(self) -> bool:
        """Whether the file must be written: it is full, or its first entry has waited long enough."""
        age_s = time.monotonic() - self.since
        return bool(self.entries) and (self.full or age_s >= self.limits.age_s)

    def accepts(self, entry: Entry) -> bool:
        """Whether the entry may go into this file: it is not full, and the entry is of the same day."""
        return not self.full and (not self.entries or day_of(self.entries[0].id) == day_of(entry.id))

    def add(self, entry: Entry) -> None:
        if not self.entries:
            self.since = time.monotonic()
        self.entries.append(entry)
        self.size += len(entry.data)


def _file(name: str) -> ArchiveFile:
    try:
        run, _, file = name.split("/")[-3:]
        first, _, last = file.removesuffix(SUFFIX).partition("_")
        return ArchiveFile(name, run.removeprefix("run="), stream_id(first), stream_id(last))
    except ValueError as error:
        raise InvalidInput(
            f"{name!r} is not a file of an archive: run=.../date=.../FIRST_LAST.parquet"
        ) from error


def _clusters(files: Sequence[ArchiveFile]) -> Iterator[list[ArchiveFile]]:
    """Groups files that overlap. Most files overlap no other, so most clusters have one file."""
    cluster: list[ArchiveFile] = []
    end: StreamId = (0, 0)
    for file in files:
        if cluster and (file.run != cluster[-1].run or file.first > end):
            yield cluster
            cluster, end = [], (0, 0)
        cluster.append(file)
        end = max(end, file.last)
    if cluster:
        yield cluster
