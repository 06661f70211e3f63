"""The positions this process holds: which are being worked on, and when the others may be again.

A plain table without Redis or clocks. What it promises: an entry is never worked on twice at once.
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
        """Every entry held, at work or not."""
        return list(self._places)

    @property
    def running(self) -> int:
        """How many are at work."""
        return sum(place.running for place in self._places.values())

    def add(self, entries: Iterable[Entry]) -> None:
        """Takes entries into the table; those it knows already stay as they are."""
        for entry in entries:
            self._places.setdefault(entry.id, _Place(entry))

    def start(self, *, now: float, limit: int) -> list[Entry]:
        """At most `limit` entries whose time has come; they are at work from now on."""
        ready = [p for p in self._places.values() if not p.running and p.due <= now][:limit]
        for place in ready:
            place.running = True
        return [place.entry for place in ready]

    def settle(self, entry_id: str) -> None:
        """Forgets an entry that was published or dead-lettered."""
        del self._places[entry_id]

    def postpone(self, entry_id: str, *, now: float) -> float:
        """Puts an entry off after a fault, each time for longer; the wait in seconds."""
        place = self._places[entry_id]
        place.postponed += 1
        wait_s = _BACKOFF_S[min(place.postponed, len(_BACKOFF_S)) - 1]
        place.due, place.running = now + wait_s, False
        return wait_s
