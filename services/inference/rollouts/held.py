"""The positions that this process holds: which are in work, and when the others may start.

A plain table that uses neither Redis nor a clock. It guarantees that no entry is in work twice at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rookery.streams import Entry

_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass
class _Place:
    entry: Entry
    postponed: int = 0
    due: float = 0.0
    running: bool = False


class Held:
    """Entries by id, oldest first."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ids(self) -> list[str]:
        """The ids of all entries, in work or not."""
        return list(self._places)

    @property
    def running(self) -> int:
        """How many entries are in work."""
        return sum(place.running for place in self._places.values())

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries; those that are in the table already stay unchanged."""
        for entry in entries:
            self._places.setdefault(entry.id, _Place(entry))

    def start(self, *, now: float, limit: int) -> list[Entry]:
        """Returns at most `limit` entries that are due, and marks them as in work."""
        ready = [p for p in self._places.values() if not p.running and p.due <= now][:limit]
        for place in ready:
            place.running = True
        return [place.entry for place in ready]

    def settle(self, entry_id: str) -> None:
        """Removes an entry that was published or dead-lettered."""
        del self._places[entry_id]

    def postpone(self, entry_id: str, *, now: float) -> float:
        """Delays an entry after a fault, longer each time. Returns the delay in seconds."""
        place = self._places[entry_id]
        place.postponed += 1
        wait_s = _BACKOFF_S[min(place.postponed, len(_BACKOFF_S)) - 1]
        place.due, place.running = now + wait_s, False
        return wait_s
