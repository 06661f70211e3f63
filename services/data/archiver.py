"""`python -m services.data.archiver`: writes every group of a run to Parquet files.

The archiver is the second reader of the stream `traces`, besides the trainer. It holds entries until they
fill a file, writes the file, and only then acknowledges them. It may be killed at any moment: after a
restart it continues with the entries that it held. Entries that are already in a file are acknowledged and
not written again. The same goes for groups that Redis lost and that were generated again. Whenever the run's
dead letters have changed, it writes them too, so that they can be read when Redis is gone.

If a second archiver starts under the same name, it takes over, and the first one stops before it writes
its next file. The trainer never waits for the archiver (see `rookery.streams`). An archiver that is down
for long therefore misses groups; they are counted.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from chess_datasets.store.folders import WrittenFile, open_folder
from chess_datasets.traces.archive import FileBatch, FileLimits, TraceArchive, stream_id
from rookery import metrics
from rookery.codec import decode_group
from rookery.command_line import main_of
from rookery.config.data import ArchiverSettings
from rookery.errors import Conflict, Unavailable, WireError
from rookery.failpoints import reach
from rookery.serving import background_service, serve
from rookery.streams import DEAD_BYTES, Entry, RunStreams

logger = logging.getLogger("services.data.archiver")

T = TypeVar("T")

BLOCK_S = 0.5
READ_AT_ONCE = 16
"""Entries read from Redis at once. Few, because a group of long completions may take megabytes."""
HEARTBEAT_S = 5.0
"""Seconds between two signs of life. Each time, the archiver also updates its metrics."""
IDLE_S = 300.0
"""Entries are taken over from another archiver after this many seconds without a sign of life from it."""
STORE_RETRY_S = 5.0
KNOWN_GROUPS = 8192
"""How many of the newest group ids are remembered. The trainer remembers as many."""


class Archiver:
    """Moves groups from the stream of a run into an archive until it is told to stop."""

    def __init__(
        self,
        run: RunStreams,
        archive: TraceArchive,
        *,
        consumer: str = "archive",
        keep: int = 1024,
        limits: FileLimits | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._run = run
        self._archive = archive
        self._consumer = consumer
        self._keep = keep
        self._idle_s = idle_s
        self._limits = limits or FileLimits()
        self._batch = FileBatch(self._limits)
        self._entries: dict[str, str] = {}  # by group id
        self._last_heartbeat = 0.0
        self._epoch = 0
        self._written_dead: object = None
        self.trouble: str | None = None
        """Why nothing can be written at the moment, or None if writing works."""

    def run(self, stopping: threading.Event) -> None:
        """Archives until `stopping` is set, then writes the entries that it still holds. Raises `SetupError`
        if the archive cannot be written at its place; `Conflict` if another archiver with the same name has
        taken over."""
        metrics.ARCHIVE_WRITABLE.set(1)
        self._epoch = self._run.archive.take_over(consumer=self._consumer)
        self._heartbeat()
        newest = partial(self._archive.newest, self._run.name, count=KNOWN_GROUPS)
        entries_by_group = self._with_retries(newest, stopping)
        if entries_by_group is None:
            return
        self._entries = entries_by_group
        self._resume(stopping)
        while not stopping.is_set():
            entries = self._run.archive.read_new(
                consumer=self._consumer,
                count=READ_AT_ONCE,
                block_s=BLOCK_S,
                known=lambda: {entry.id for entry in self._batch.entries},
            )
            self._add(entries, stopping)
            if self._batch.due:
                self._write(stopping)
            if time.monotonic() - self._last_heartbeat >= HEARTBEAT_S:
                self._heartbeat()
                # Entries of an archiver that is gone, and those whose delivery Redis has forgotten.
                claimed = self._run.archive.claim_idle(consumer=self._consumer, idle_s=self._idle_s)
                self._add(self._without_archived(claimed, stopping), stopping)
                self._write_dead(stopping)
        self._write(stopping)
        self._write_dead(stopping)

    def _resume(self, stopping: threading.Event) -> None:
        """Handles the entries that this consumer held when it last stopped. Some may already be in a file."""
        last, taken = "0", 0
        while held := self._run.archive.read_held(consumer=self._consumer, count=READ_AT_ONCE, after=last):
            last, taken = held[-1].id, taken + len(held)
            self._add(self._without_archived(held, stopping), stopping)
            if stopping.is_set():
                return
        if taken:
            logger.info("resumed with %d groups of an earlier process", taken)

    def _without_archived(self, entries: Sequence[Entry], stopping: threading.Event) -> list[Entry]:
        """Acknowledges the entries that are in a file, and returns the others, or none if told to stop."""
        ids = [entry.id for entry in entries]
        archived = self._with_retries(partial(self._archive.archived_entries, self._run.name, ids), stopping)
        if archived is None:
            return []
        if archived:
            self._acknowledge(sorted(archived), "archived", label="known")
        return [entry for entry in entries if entry.id not in archived]

    def _add(self, entries: Iterable[Entry], stopping: threading.Event) -> None:
        for entry in entries:
            group_id = _group_id(entry)
            if group_id is None:
                self._acknowledge([entry.id], "unreadable", label="unreadable")
                continue
            entry_id = self._entries.get(group_id)
            if entry_id == entry.id:  # Redis lost its last second and delivers it again
                if all(held.id != entry.id for held in self._batch.entries):
                    self._acknowledge([entry.id], "archived", label="known")
                continue
            if entry_id:
                logger.warning(
                    "group %s is in the archive as entry %s: %s is left out", group_id, entry_id, entry.id
                )
                self._acknowledge([entry.id], "duplicate", label="duplicate")
                continue
            self._entries[group_id] = entry.id
            if len(self._entries) > KNOWN_GROUPS:
                del self._entries[next(iter(self._entries))]
            if not self._batch.accepts(entry):
                self._write(stopping)
            self._batch.add(entry)

    def _write(self, stopping: threading.Event) -> None:
        """Writes the batch, or leaves it for the next start."""
        if self._batch.entries and self._with_retries(self._write_once, stopping) is None:
            logger.warning("leaves %d groups for the next start", len(self._batch.entries))

    def _with_retries(self, work: Callable[[], T], stopping: threading.Event) -> T | None:
        """What `work` returns. Retries while the store is unreachable or full; None if told to stop then."""
        while True:
            try:
                result = work()
            except Unavailable as error:
                self._report(trouble=str(error))
                self._heartbeat()
                if stopping.wait(STORE_RETRY_S):
                    return None
            else:
                self._report(trouble=None)
                return result

    def _report(self, *, trouble: str | None) -> None:
        """Logs a new failure of the store, and its recovery, once each."""
        if trouble and trouble != self.trouble:
            logger.error("cannot write to the archive: %s; retrying every %.0f s", trouble, STORE_RETRY_S)
        elif self.trouble and not trouble:
            logger.info("the archive can be written again")
        metrics.ARCHIVE_WRITABLE.set(trouble is None)
        self.trouble = trouble

    def _write_once(self) -> WrittenFile:
        self._check_epoch()
        entries = sorted(self._batch.entries, key=lambda entry: stream_id(entry.id))
        ids = [entry.id for entry in entries]
        groups = ((entry.id, decode_group(entry.data)) for entry in entries)
        written = self._archive.write(self._run.name, groups, first=ids[0], last=ids[-1])
        reach("archive.written")
        metrics.ARCHIVE_FILES.inc()
        metrics.ARCHIVE_BYTES.inc(written.size)
        self._acknowledge(ids, "archived", label="archived")
        reach("archive.acknowledged")
        logger.info("archived %d groups in %s", len(ids), self._archive.folder.place(written.name))
        self._batch = FileBatch(self._limits)
        return written

    def _acknowledge(self, ids: Sequence[str], result: str, *, label: str) -> None:
        self._run.archive.acknowledge(ids, result=result)
        metrics.ARCHIVE_GROUPS.labels(label).inc(len(ids))

    def _heartbeat(self) -> None:
        """Joins the run again in case Redis lost its data, renews the claim on entries, updates metrics."""
        self._check_epoch()
        self._run.archive.join(limit=self._keep)
        held = [entry.id for entry in self._batch.entries]
        self._run.archive.keep(held, consumer=self._consumer)
        state = self._run.overview()
        metrics.ARCHIVE_WAITING.set(state.unarchived)
        metrics.ARCHIVE_MISSED.set(state.counts.archive.get("missed", 0))
        self._last_heartbeat = time.monotonic()

    def _write_dead(self, stopping: threading.Event) -> None:
        """Writes the dead letters, if there are others than at the last time. A Redis that has lost the run's
        counts has lost them too: the file stays as it is."""
        state = self._run.overview()
        dead = (state.dead, state.counts.dead)
        if dead == self._written_dead:
            return
        letters = self._run.dead.letters(most_bytes=DEAD_BYTES)

        def write() -> bool:
            if state.counts.dead or not self._archive.has_dead(self._run.name):
                self._archive.write_dead(self._run.name, letters)
            return True

        if self._with_retries(write, stopping):
            self._written_dead = dead

    def _check_epoch(self) -> None:
        """Raises `Conflict` if another archiver with the same name has started and owns the held entries."""
        epoch = self._run.archive.epoch(consumer=self._consumer)
        if epoch == 0:  # Redis lost its data, and with it that the archive has joined
            self._epoch = self._run.archive.take_over(consumer=self._consumer)
            self._run.archive.join(limit=self._keep)
        elif epoch != self._epoch:
            raise Conflict(
                f"another archiver {self._consumer!r} of run {self._run.name!r} has taken over; "
                "to have two, give each a --consumer of its own"
            )


def _group_id(entry: Entry) -> str | None:
    try:
        return decode_group(entry.data).id
    except WireError as error:
        logger.error("entry %s cannot be archived: %s", entry.id, error)
        return None


async def run(settings: ArchiverSettings) -> None:
    """Archives until SIGINT or SIGTERM."""
    stopped = threading.Event()
    run = RunStreams(settings.redis_url, settings.run, stopping=stopped)
    archiver = Archiver(
        run,
        TraceArchive(open_folder(settings.out)),
        consumer=settings.consumer,
        keep=settings.keep,
        limits=FileLimits(settings.file_groups, settings.file_mb << 20, settings.file_age_s),
    )

    async def archive(stopping: asyncio.Event) -> None:
        try:
            await asyncio.to_thread(archiver.run, stopped)
        except Unavailable:
            if not stopping.is_set():
                raise

    async def ready() -> str | None:
        return await run.redis.unreachable() or archiver.trouble

    await serve(background_service(settings, "archiver", run.redis.stop_waiting, archive, ready=ready))


main = main_of("serve archive", __name__)
