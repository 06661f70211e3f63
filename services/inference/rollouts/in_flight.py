"""The positions that this process holds: which are in work, and when the others may start.

A plain table that uses neither Redis nor a clock. It guarantees that no entry is in work twice at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rookery.retries import pause_after
from rookery.streams import Entry

PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass
class _Held:
    entry: Entry
    postponed: int = 0
    due: float = 0.0
    running: bool = False


class InFlight:
    """Entries by id, oldest first."""

    def __init__(self) -> None:
        self._entries: dict[str, _Held] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> list[str]:
        """The ids of all entries, in work or not."""
        return list(self._entries)

    @property
    def running(self) -> int:
        """How many entries are in work."""
        return sum(held.running for held in self._entries.values())

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries; those that are in the table already stay unchanged."""
        for entry in entries:
            self._entries.setdefault(entry.id, _Held(entry))

    def start(self, *, now: float, limit: int) -> list[Entry]:
        """Returns at most `limit` entries that are due, and marks them as in work."""
        ready = [held for held in self._entries.values() if not held.running and held.due <= now][:limit]
        for held in ready:
            held.running = True
        return [held.entry for held in ready]

    def remove(self, entry_id: str) -> None:
        """Removes an entry that was published or dead-lettered."""
        del self._entries[entry_id]

    def postpone(self, entry_id: str, *, now: float) -> float:
        """Delays an entry after a fault, longer each time. Returns the delay in seconds."""
        held = self._entries[entry_id]
        held.postponed += 1
        wait_s = pause_after(held.postponed, PAUSES_S)
        held.due, held.running = now + wait_s, False
        return wait_s
