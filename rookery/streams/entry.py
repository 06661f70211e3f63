"""A stream entry that a consumer holds and must settle."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One stream entry that this consumer holds and must settle."""

    id: str
    data: bytes
