"""The entries that the archiver holds for its next file, and the limits of that file."""

import time
from dataclasses import dataclass, field

from rookery.streams import Entry
from services.data.traces.vault import day_of


@dataclass(frozen=True, slots=True)
class Limits:
    """A file ends at this many groups, or bytes, or seconds since its first group arrived."""

    groups: int = 256
    size: int = 64 << 20
    age_s: float = 60.0


@dataclass(slots=True)
class Batch:
    """Entries held for the next file, all of one day."""

    limits: Limits
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    since: float = 0.0

    @property
    def full(self) -> bool:
        return len(self.entries) >= self.limits.groups or self.size >= self.limits.size

    @property
    def due(self) -> bool:
        """Whether the batch must be written: it is full, or its first entry has waited long enough."""
        age_s = time.monotonic() - self.since
        return bool(self.entries) and (self.full or age_s >= self.limits.age_s)

    def takes(self, entry: Entry) -> bool:
        """Whether the entry fits in the same file: there is room, and it is of the same day."""
        return not self.full and (not self.entries or day_of(self.entries[0].id) == day_of(entry.id))

    def add(self, entry: Entry) -> None:
        if not self.entries:
            self.since = time.monotonic()
        self.entries.append(entry)
        self.size += len(entry.data)
