"""Reads a stream as a consumer of a group: new entries, entries it already holds, and abandoned ones.

Entries that cannot be handled are moved to the stream `dead`, each with the reason.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import redis

from rookery.streams import lua
from rookery.streams.connection import RunConnection

logger = logging.getLogger(__name__)

DEAD_LIMIT = 1000
"""Maximum entries of `dead`. Older ones are deleted, but are still included in `counts`."""

CLAIMED_AT_ONCE = 16
"""After so many idle entries, no more are looked for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stream entry that this consumer holds and must settle."""

    id: str
    data: bytes


class Reader(RunConnection):
    """Reads the entries of a run's streams. Missing consumer groups are created."""

    def __init__(
        self, url: str, run: str, *, stopping: threading.Event | None = None, once: bool = False
    ) -> None:
        super().__init__(url, run, stopping=stopping, once=once)
        self._losses_at_read: dict[str, int] = {}

    def read(self, stream: str, *, group: str, consumer: str, count: int, block_s: float) -> list[Entry]:
        """Returns new entries for this consumer, or an empty list if there are none within `block_s`."""
        return self._read(stream, group, consumer, start=">", count=count, block_s=block_s)

    def read_new(
        self,
        stream: str,
        *,
        group: str,
        consumer: str,
        count: int,
        block_s: float,
        known: Callable[[], Collection[str]],
    ) -> list[Entry]:
        """As `read`; but if a reply may have been lost, all entries that this consumer holds, except `known`.

        `known` returns the ids of the entries that the consumer has. It is called after the wait for new
        ones, because other threads may have settled some meanwhile, and Redis may have forgotten it.
        """
        entries = self.read(stream, group=group, consumer=consumer, count=count, block_s=block_s)
        losses = self.connections.losses
        if losses == self._losses_at_read.get(stream):
            return entries
        self._losses_at_read[stream] = losses
        known_ids = known()
        held = self.read_held(stream, group=group, consumer=consumer, count=100_000)
        return [entry for entry in held if entry.id not in known_ids]

    def read_held(
        self, stream: str, *, group: str, consumer: str, count: int = 1000, after: str = "0"
    ) -> list[Entry]:
        """Entries after `after` that this consumer already holds, oldest first.

        A restarted consumer uses this to go on with the entries that it held before.
        """
        return self._read(stream, group, consumer, start=after, count=count, block_s=None)

    def claim_idle(self, stream: str, *, group: str, consumer: str, idle_s: float) -> list[Entry]:
        """Takes over some or all entries whose holder was idle for `idle_s`, and so is considered dead.

        Entries whose consumer was deleted are taken over too. Entries that were deleted themselves stop being
        pending.
        """
        args = (group, consumer, int(idle_s * 1000), CLAIMED_AT_ONCE)
        answer = self._script(lua.CLAIM, shared_keys(stream), *args)
        if answer is None:
            self._ensure_group(stream, group)
            return []
        rows, astray, deleted = answer
        if astray or deleted:
            logger.error(
                "%s: restored %d entries whose consumer was deleted, forgot %d that were deleted themselves",
                self.key(stream),
                astray,
                deleted,
            )
        return [
            _to_entry((entry_id, dict(zip(*[iter(fields)] * 2, strict=True)))) for entry_id, fields in rows
        ]

    def keep(self, stream: str, entry_ids: Sequence[str], *, group: str, consumer: str) -> None:
        """Resets the idle time of entries that this consumer still works on, so that no other claims them."""
        if not entry_ids:
            return
        with suppress(redis.ResponseError):  # NOGROUP: the next read creates the group
            self._call(
                lambda: self._redis.xclaim(
                    self.key(stream), group, consumer, 0, cast(Any, list(entry_ids)), justid=True
                )
            )

    def _read(
        self, stream: str, group: str, consumer: str, *, start: str, count: int, block_s: float | None
    ) -> list[Entry]:
        block = None if block_s is None else max(1, int(block_s * 1000))
        rows = self._call_with_group(
            stream,
            group,
            lambda: self._redis.xreadgroup(
                group, consumer, {self.key(stream): start}, count=count, block=block
            ),
        )
        return [_to_entry(row) for row in rows[0][1] if row[1]] if rows else []

    def _call_with_group(self, stream: str, group: str, command: Callable[[], object]) -> Any:
        """The answer of a command that needs a consumer group; None if the group had to be created first."""
        try:
            return self._call(command)
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            self._ensure_group(stream, group)
            return None

    def _ensure_group(self, stream: str, group: str) -> None:
        """Creates the group, from the oldest entry on. It is missing at first, or if Redis lost its data."""
        try:
            self._call(lambda: self._redis.xgroup_create(self.key(stream), group, id="0", mkstream=True))
            logger.info("created consumer group %s on %s", group, self.key(stream))
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def length(self, stream: str) -> int:
        """The number of entries in a stream, delivered or not."""
        return int(self._call(lambda: self._redis.xlen(self.key(stream))))

    def pending(self, stream: str, *, group: str) -> int:
        """The number of entries delivered to consumers of `group` and not yet acknowledged."""
        try:
            info = self._call(lambda: self._redis.xpending(self.key(stream), group))
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            return 0
        return int(info["pending"])


def _to_entry(row: Any) -> Entry:
    entry_id, fields = row
    return Entry(entry_id.decode(), fields.get(b"data", b""))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry of `dead`: its own id, the stream and id that it had, the reason, and its bytes.

    No bytes: the entry was no longer in its stream, so it is lost.
    """

    id: str
    stream: str
    entry: str
    reason: str
    data: bytes


class DeadLetters(Reader):
    """Moves entries of a run's streams to `dead`, and back."""

    def dead_letter(self, stream: str, entry_id: str, *, group: str, reason: str) -> None:
        """Moves a held entry to `dead`, with the reason. `dead` keeps the newest `DEAD_LIMIT` entries."""
        names = [*shared_keys(stream), "dead", f"{stream}:faults"]
        args = (group, entry_id, stream, reason, DEAD_LIMIT)
        self._script(lua.DEAD_LETTER, names, *args)
        logger.error("dead-lettered entry %s of %s: %s", entry_id, stream, reason)

    def dead_letters(self) -> list[DeadLetter]:
        """The entries of `dead`, oldest first."""
        rows = cast(list[Any], self._call(lambda: self._redis.xrange(self.key("dead"))))
        return [
            DeadLetter(
                id=dead_id.decode(),
                stream=fields[b"stream"].decode(),
                entry=fields[b"entry"].decode(),
                reason=fields[b"reason"].decode(),
                data=fields.get(b"data", b""),
            )
            for dead_id, fields in rows
        ]

    def replay_dead(self, letter: DeadLetter) -> bool:
        """Adds an entry to its stream again, under a new id. Returns False if it is gone or was lost.

        A group counts as generated again, because it counts as dead once and is in the stream again.
        """
        return bool(self._script(lua.REPLAY_DEAD, ["dead", letter.stream, "counts"], letter.id))

    def drop_dead(self, letter: DeadLetter) -> bool:
        """Deletes an entry from `dead`; it stays counted. Returns False if it is no longer there."""
        return bool(self._call(lambda: self._redis.xdel(self.key("dead"), letter.id)))


def shared_keys(stream: str) -> list[str]:
    """The keys of a stream that the trainer and the archive share: KEYS[1] to KEYS[5] of the scripts."""
    return [stream, "counts", f"{stream}:archive", f"{stream}:settled", f"{stream}:archived"]
