"""What waits in a stream and for whom: plain numbers, read in one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Consumer:
    """One reader of a group: entries it holds, and how long ago it last asked."""

    name: str
    pending: int
    idle_s: float


@dataclass(frozen=True, slots=True)
class ReaderGroup:
    """A consumer group; `lag` are the entries that none of its consumers has been given."""

    name: str
    lag: int
    consumers: tuple[Consumer, ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """One stream: its entries, the age of the oldest (0 without any), its consumer groups."""

    length: int
    oldest_s: float
    groups: tuple[ReaderGroup, ...]

    @classmethod
    def read(cls, reply: Sequence[Any]) -> Self:
        """From the reply of the script `BACKLOG`."""
        length, age_ms, groups = reply
        return cls(
            int(length),
            max(0, int(age_ms)) / 1000,
            tuple(
                ReaderGroup(
                    name.decode(),
                    int(lag),
                    tuple(
                        Consumer(consumer.decode(), int(pending), int(idle_ms) / 1000)
                        for consumer, pending, idle_ms in consumers
                    ),
                )
                for name, lag, consumers in groups
            ),
        )
