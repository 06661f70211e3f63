"""A stream entry that a consumer holds and must settle."""

from dataclasses import dataclass

from rookery.codec import decode_group
from rookery.errors import WireError
from rookery.trace import TraceGroup

MAX_DELIVERIES = 5
"""An entry delivered more often than this is dead-lettered, because it probably crashes its readers."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stream entry that this consumer holds and must settle."""

    id: str
    data: bytes
    deliveries: int = 1


def decode_held_group(entry: Entry) -> TraceGroup:
    """Decodes the group of a `traces` entry.

    Raises:
        WireError: the entry cannot be decoded, or was delivered too often.
    """
    if entry.deliveries > MAX_DELIVERIES:
        raise WireError(f"entry {entry.id} was delivered {entry.deliveries} times without an end")
    return decode_group(entry.data)
