"""Counts how often engines died while they searched a position, and refuses positions that killed several.

`Engine` decides whether a crash is due to its position, and the pool handles the searches that were lost.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass

from rookery import metrics
from rookery.errors import EngineFault, Quarantined

MAX_CRASHES = 2
"""A position is refused after this many engines died over it."""

QUARANTINE_S = 3600.0
"""How long crashes count against a position. They are forgotten, as engines also die for other reasons."""

_POSITIONS = 1024


@dataclass(frozen=True, slots=True)
class _Record:
    crashes: int
    since: float
    """When the last crash was."""
    last: str


class Quarantine:
    """Counts crashes by position. Of more than `_POSITIONS` positions, the oldest is forgotten."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def refusal(self, fen: str) -> Quarantined | None:
        """The error for a refused position, or None if `fen` may be searched."""
        record = self._records.get(fen)
        if record is None or record.crashes < MAX_CRASHES or time.monotonic() - record.since > QUARANTINE_S:
            return None
        return Quarantined(f"{record.crashes} engines died over {fen!r}, the last time: {record.last}")

    def count(self, fen: str, fault: EngineFault) -> None:
        """Records that an engine died while it searched `fen`."""
        now = time.monotonic()
        record = self._records.pop(fen, None)
        crashes = record.crashes if record and now - record.since < QUARANTINE_S else 0
        self._records[fen] = _Record(crashes + 1, now, str(fault))
        if len(self._records) > _POSITIONS:
            self._records.popitem(last=False)
        if crashes + 1 == MAX_CRASHES:
            metrics.POSITIONS_QUARANTINED.inc()
