"""The backlog of a stream and its consumer groups: plain numbers, read by one script."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a group: how many entries it holds, and the time since its last call."""

    name: str
    pending: int
    idle_s: float


@dataclass(frozen=True, slots=True)
class ReaderGroup:
    """A consumer group. `lag` is how many entries have not been delivered to any of its consumers."""

    name: str
    lag: int
    consumers: tuple[Consumer, ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """A stream: its number of entries, the age of the oldest (0 if there is none), its consumer groups."""

    length: int
    oldest_s: float
    groups: tuple[ReaderGroup, ...]

    @classmethod
    def read(cls, reply: Sequence[Any]) -> Self:
        """Parses the reply of the script `BACKLOG`."""
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
