"""Positions that engines died over: counted, and refused when they have cost enough.

Which death is a position's own is for the engine to say, and what becomes of its searches for the pool.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass

from rookery import metrics
from rookery.errors import EngineFault, Quarantined

MAX_CRASHES = 2
"""Engines that a position may cost."""

QUARANTINE_S = 3600.0
"""How long crashes are held against a position: engines also die of other things."""

_POSITIONS = 1024


@dataclass(frozen=True, slots=True)
class _Record:
    crashes: int
    since: float
    """When the last of them was."""
    last: str


class Quarantine:
    """The crashes of positions, the oldest forgotten."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def refusal(self, fen: str) -> Quarantined | None:
        """The error, where `fen` has cost enough engines."""
        record = self._records.get(fen)
        if record is None or record.crashes < MAX_CRASHES or time.monotonic() - record.since > QUARANTINE_S:
            return None
        return Quarantined(f"{record.crashes} engines died over {fen!r}, the last time: {record.last}")

    def count(self, fen: str, fault: EngineFault) -> None:
        """Takes down that an engine died over `fen`."""
        now = time.monotonic()
        record = self._records.pop(fen, None)
        crashes = record.crashes if record and now - record.since < QUARANTINE_S else 0
        self._records[fen] = _Record(crashes + 1, now, str(fault))
        if len(self._records) > _POSITIONS:
            self._records.popitem(last=False)
        if crashes + 1 == MAX_CRASHES:
            metrics.POSITIONS_QUARANTINED.inc()
