"""Counts duplicates among any number of things, in bounded memory.

Keys are 64-bit hashes. When too many are stored, those of half of the key space are dropped, and the rest is
used as a sample. All copies of a thing have the same key, so the share of copies is estimated correctly. Up
to the limit, the numbers are exact. (Adaptive sampling, after M. Wegman; Flajolet 1990.)
"""

from dataclasses import dataclass, field
from typing import Any, Self

LIMIT = 1 << 18
"""The most keys stored, about 100 bytes each."""


@dataclass(slots=True)
class Repeats:
    """Counts keys. `level` is how often half of the key space was dropped."""

    limit: int = LIMIT
    level: int = 0
    _seen: dict[int, int] = field(default_factory=dict)

    def add(self, key: int) -> None:
        self._count(key, 1)
        self._shrink()

    def merge(self, other: Self) -> None:
        """Adds the counts of another."""
        if other.level > self.level:
            self._raise(other.level)
        for key, times in other._seen.items():
            self._count(key, times)
        self._shrink()

    @property
    def exact(self) -> bool:
        return self.level == 0

    def summary(self) -> dict[str, Any]:
        """The number of distinct things and of further copies of them. `exact` is false for estimates."""
        distinct = len(self._seen)
        copies = sum(self._seen.values()) - distinct
        return {"distinct": distinct << self.level, "copies": copies << self.level, "exact": self.exact}

    def _count(self, key: int, times: int) -> None:
        if not key & ((1 << self.level) - 1):
            self._seen[key] = self._seen.get(key, 0) + times

    def _shrink(self) -> None:
        while len(self._seen) > self.limit:
            self._raise(self.level + 1)

    def _raise(self, level: int) -> None:
        self.level = level
        mask = (1 << level) - 1
        self._seen = {key: times for key, times in self._seen.items() if not key & mask}
