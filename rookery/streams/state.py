"""The state of a run's streams as plain numbers: the account of all groups, and the backlog of a stream.

Every group of a run is accounted for: generated = trained + dropped + dead + in the stream.
The archive has a second account of the same groups: generated = before + archived + unreadable + duplicate +
missed + waiting. `RunStreams` reads the numbers from Redis in one transaction or script.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of groups by result.

    `archive` is the archive's account, empty without an archive: `before` (processed before the archive
    joined), `archived`, `unreadable`, `duplicate` (generated again with an id that the archive already has)
    and `missed` (removed from the stream because the archive was too far behind).
    """

    generated: int
    trained: int
    dropped: dict[str, int]
    dead: dict[str, int]
    archive: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: Mapping[bytes, bytes]) -> Self:
        fields = {name.decode(): int(value) for name, value in raw.items()}
        return cls(
            generated=fields.get("generated", 0),
            trained=fields.get("trained", 0),
            dropped=_with_prefix(fields, "dropped:"),
            dead=_with_prefix(fields, "dead:"),
            archive=_with_prefix(fields, "archive:"),
        )

    @property
    def accepted(self) -> int:
        """Groups that count towards admission: generated, and neither dropped nor dead."""
        return self.generated - sum(self.dropped.values()) - self.dead.get("traces", 0)

    @property
    def settled(self) -> int:
        """Groups that the trainer has finished with: trained, dropped or dead."""
        return self.trained + sum(self.dropped.values()) + self.dead.get("traces", 0)


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at one moment: the entries in its streams, its counts and its committed version.

    `traces` is the number of groups that the trainer has not settled yet; the archive has already written
    `archived_ahead` of them. `kept` groups are settled and stay in the stream only for the archive.
    `waiting` groups were in the stream, not settled, when the version was published. `ended`: it is the last.
    `full`: Redis has no memory for writes.
    """

    counts: Counts
    positions: int
    traces: int
    dead: int
    committed: int | None
    waiting: int = 0
    ended: bool = False
    kept: int = 0
    archived_ahead: int = 0
    full: bool = False

    @property
    def astray(self) -> int:
        """Generated groups that are neither settled nor in the stream. 0 unless groups were lost."""
        return self.counts.generated - self.counts.settled - self.traces

    @property
    def dead_deleted(self) -> int:
        """Dead letters that are no longer in `dead`: replayed, dropped, or too old."""
        return max(0, sum(self.counts.dead.values()) - self.dead)

    @property
    def unarchived(self) -> int:
        """Groups in the stream that the archive has not written yet."""
        return self.traces + self.kept - self.archived_ahead

    @property
    def archive_astray(self) -> int:
        """Groups missing from the archive's account: 0 unless groups were lost. 0 without an archive."""
        if not self.counts.archive:
            return 0
        return self.counts.generated - sum(self.counts.archive.values()) - self.unarchived


def _with_prefix(fields: dict[str, int], prefix: str) -> dict[str, int]:
    return {k.removeprefix(prefix): v for k, v in fields.items() if k.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a group: how many entries it holds, and the time since its last call."""

    name: str
    pending: int
    idle_s: float


@dataclass(frozen=True, slots=True)
class ReaderGroup:
    """A consumer group. `lag` is how many entries have not been delivered to any of its consumers."""

    name: str
    lag: int
    consumers: tuple[Consumer, ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """A stream: its number of entries, the age of the oldest (0 if there is none), its consumer groups."""

    length: int
    oldest_s: float
    groups: tuple[ReaderGroup, ...]

    @classmethod
    def read(cls, reply: Sequence[Any]) -> Self:
        """Parses the reply of the script `BACKLOG`."""
        length, age_ms, groups = reply
        return cls(
            int(length),
            max(0, int(age_ms)) / 1000,
            tuple(
                ReaderGroup(
                    name.decode(),
                    int(lag),
                    tuple(
                        Consumer(consumer.decode(), int(pending), int(idle_ms) / 1000)
                        for consumer, pending, idle_ms in consumers
                    ),
                )
                for name, lag, consumers in groups
            ),
        )
