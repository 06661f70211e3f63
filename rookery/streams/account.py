"""What became of every group of a run: generated = trained + dropped + dead + in the stream.

The archive keeps an account of its own over the same groups: generated = before + archived + unreadable +
duplicate + missed + waiting. Plain numbers; the streams read them from Redis in one transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of every group of the run so far.

    `archive` is the second account: `before` the archive came, `archived`, `unreadable`, `duplicate` (made
    again under an id that the archive has), and `missed` because the archive was too far behind; empty when
    there is none.
    """

    generated: int
    trained: int
    dropped: dict[str, int]
    dead: dict[str, int]
    archive: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: Mapping[bytes, bytes]) -> Self:
        """From the `counts` hash."""
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
        """Groups that count towards admission: generated and not thrown away."""
        return self.generated - sum(self.dropped.values()) - self.dead.get("traces", 0)

    @property
    def settled(self) -> int:
        """Groups that the trainer is through with."""
        return self.trained + sum(self.dropped.values()) + self.dead.get("traces", 0)


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at one instant: entries in its streams, its counts and its committed version.

    `traces` are the groups that the trainer has yet to settle; of these the archive is through with
    `archived_ahead`. `kept` ones are settled and stay in the stream for the archive alone.
    """

    counts: Counts
    positions: int
    traces: int
    dead: int
    committed: int | None
    kept: int = 0
    archived_ahead: int = 0

    @property
    def astray(self) -> int:
        """Groups generated that are neither settled nor in the stream: 0, or something was lost."""
        return self.counts.generated - self.counts.settled - self.traces

    @property
    def dead_deleted(self) -> int:
        """Dead letters that are no longer in `dead`, which keeps the newest alone."""
        return max(0, sum(self.counts.dead.values()) - self.dead)

    @property
    def unarchived(self) -> int:
        """Groups in the stream that the archive has not written yet."""
        return self.traces + self.kept - self.archived_ahead

    @property
    def archive_astray(self) -> int:
        """Groups of which the archive's account knows nothing: 0, or something was lost."""
        if not self.counts.archive:
            return 0
        return self.counts.generated - sum(self.counts.archive.values()) - self.unarchived


def _with_prefix(fields: dict[str, int], prefix: str) -> dict[str, int]:
    return {k.removeprefix(prefix): v for k, v in fields.items() if k.startswith(prefix)}
