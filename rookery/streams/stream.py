"""Reads a stream as a consumer of a group: new entries, entries it already holds, and abandoned ones.

Entries that cannot be handled are moved to the stream `dead`, each with the reason.
"""

import logging
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
    """One stream entry that a consumer holds and must settle."""

    id: str
    data: bytes


class Stream:
    """A stream of a run, as the consumers of one group read it. A missing consumer group is created."""

    def __init__(self, redis: RunConnection, name: str, *, group: str) -> None:
        self.redis, self._name, self._group = redis, name, group
        self._losses_at_read: int | None = None

    def read(self, *, consumer: str, count: int, block_s: float) -> list[Entry]:
        """Returns new entries for this consumer, or an empty list if there are none within `block_s`."""
        return self._read(consumer, start=">", count=count, block_ms=max(1, int(block_s * 1000)))

    def read_new(
        self, *, consumer: str, count: int, block_s: float, known: Callable[[], Collection[str]]
    ) -> list[Entry]:
        """As `read`; but if a reply may have been lost, all entries that this consumer holds, except `known`.

        `known` returns the ids of the entries that the consumer has. It is called after the wait for new
        ones, because other threads may have settled some meanwhile, and Redis may have forgotten it.
        """
        entries = self.read(consumer=consumer, count=count, block_s=block_s)
        losses = self.redis.connections.losses
        if losses == self._losses_at_read:
            return entries
        self._losses_at_read = losses
        known_ids = known()
        held = self.read_held(consumer=consumer, count=100_000)
        return [entry for entry in held if entry.id not in known_ids]

    def read_held(self, *, consumer: str, count: int = 1000, after: str = "0") -> list[Entry]:
        """Entries after `after` that this consumer already holds, oldest first.

        A restarted consumer uses this to go on with the entries that it held before.
        """
        return self._read(consumer, start=after, count=count, block_ms=None)

    def claim_idle(self, *, consumer: str, idle_s: float) -> list[Entry]:
        """Takes over some or all entries whose holder was idle for `idle_s`, and so is considered dead.

        Entries whose consumer was deleted are taken over too. Entries that were deleted themselves stop being
        pending.
        """
        args = (self._group, consumer, int(idle_s * 1000), CLAIMED_AT_ONCE)
        answer = self.redis.script(lua.CLAIM, shared_keys(self._name), *args)
        if answer is None:
            self._ensure_group()
            return []
        rows, astray, deleted = answer
        if astray or deleted:
            logger.error(
                "%s: restored %d entries whose consumer was deleted, forgot %d that were deleted themselves",
                self._key,
                astray,
                deleted,
            )
        return [
            _to_entry((entry_id, dict(zip(*[iter(fields)] * 2, strict=True)))) for entry_id, fields in rows
        ]

    def keep(self, entry_ids: Sequence[str], *, consumer: str) -> None:
        """Resets the idle time of entries that this consumer still works on, so that no other claims them."""
        if not entry_ids:
            return
        ids = cast(Any, list(entry_ids))
        with suppress(redis.ResponseError):  # NOGROUP: the next read creates the group
            self.redis.call(
                lambda client: client.xclaim(self._key, self._group, consumer, 0, ids, justid=True)
            )

    def dead_letter(self, entry_id: str, *, reason: str) -> None:
        """Moves a held entry to `dead`, with the reason. `dead` keeps the newest `DEAD_LIMIT` entries."""
        names = [*shared_keys(self._name), "dead", f"{self._name}:faults", f"{self._name}:turns"]
        values = (self._group, entry_id, self._name, reason, DEAD_LIMIT)
        self.redis.script(lua.DEAD_LETTER, names, *values)
        logger.error("dead-lettered entry %s of %s: %s", entry_id, self._name, reason)

    def length(self) -> int:
        return int(self.redis.call(lambda client: client.xlen(self._key)))

    def pending(self) -> int:
        """The number of entries delivered to consumers of the group and not yet acknowledged."""
        try:
            return int(self.redis.call(lambda client: client.xpending(self._key, self._group))["pending"])
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            return 0

    @property
    def _key(self) -> str:
        return self.redis.key(self._name)

    def _read(self, consumer: str, *, start: str, count: int, block_ms: int | None) -> list[Entry]:
        try:
            rows = self.redis.call(
                lambda client: client.xreadgroup(
                    self._group, consumer, {self._key: start}, count=count, block=block_ms
                )
            )
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            self._ensure_group()
            return []
        return [_to_entry(row) for row in cast(Any, rows)[0][1] if row[1]] if rows else []

    def _ensure_group(self) -> None:
        """Creates the group, from the oldest entry on. It is missing at first, or if Redis lost its data."""
        try:
            self.redis.call(
                lambda client: client.xgroup_create(self._key, self._group, id="0", mkstream=True)
            )
            logger.info("created consumer group %s on %s", self._group, self._key)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


def _to_entry(row: Any) -> Entry:
    entry_id, fields = row
    return Entry(entry_id.decode(), fields.get(b"data", b""))


def shared_keys(stream: str) -> list[str]:
    """The keys of a stream that the trainer and the archive share: KEYS[1] to KEYS[5] of the scripts."""
    return [stream, "counts", f"{stream}:archive", f"{stream}:settled", f"{stream}:archived"]
