"""Limits how far generation runs ahead of the trainer: by AReaL's bound and, below it, by the trainer's need.

Also the table of the positions that this process holds. Only arithmetic: `loop` starts the work.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rookery.retries import pause_after
from rookery.streams import Entry

PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Delays of a position after faults."""

WINDOW = 12
"""Versions for all of which no group was missing, after which fewer groups are started ahead."""
FIRST_WINDOW = 3
"""The same at the start of a run, until a group is missing for the first time."""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The groups of the whole run, all replicas together, as counted in Redis.

    `accepted` groups were generated and not dropped; `untrained` of them wait in `traces`. `pending`
    positions are held by a consumer. `ended`: the trainer does no more steps.
    """

    accepted: int
    untrained: int
    pending: int
    ended: bool = False


class Lead:
    """How many groups may be made ahead: beyond those of the batch that trains on the served version.

    The trainer needs a batch when it publishes a version. Groups that are complete earlier get older, by one
    version for each batch that is trained on before them. While they are complete in time, `groups` falls to
    what is needed: after `WINDOW` versions by the smallest number of groups that were left over in one of
    them, at the least to one batch, which is made while the trainer works on the one before. Whenever
    groups are missing, as many are added, and at least a batch. So where inference is the slower side,
    `groups` is what it is without `just_in_time`: `staleness * batch_groups`, with which every run begins.
    """

    def __init__(self, batch_groups: int, staleness: int, *, just_in_time: bool) -> None:
        self.batch_groups = batch_groups
        self._most = staleness * batch_groups
        self._least = min(batch_groups, self._most) if just_in_time else self._most
        self.groups = self._most
        self._window = FIRST_WINDOW
        self._left_over: list[int] = []
        self._version: int | None = None
        self._dropped = 0

    def observe(self, *, version: int | None, waiting: int, dropped: int) -> None:
        """Takes note of a newly published version; does nothing if it is known.

        When it was published, `waiting` groups were in `traces`. The trainer has dropped `dropped` groups so
        far; it needs as many as it dropped in the last step in addition to a batch.
        """
        if version is None or version == self._version:
            return
        needed = self.batch_groups + max(0, dropped - self._dropped)
        first = self._version is None
        self._version, self._dropped = version, dropped
        if first:  # nothing could be ready for the first version of a run
            return
        left_over = waiting - needed
        if left_over < 0:
            self.groups = min(self.groups + max(-left_over, self.batch_groups), self._most)
            self._window = WINDOW
            self._left_over.clear()
            return
        self._left_over.append(left_over)
        if len(self._left_over) >= self._window:
            self.groups = max(self.groups - min(self._left_over), self._least)
            self._left_over.clear()


@dataclass(frozen=True, slots=True)
class Playing:
    """The groups of this process whose episodes go on after their first turns, and what they occupy of the
    inference servers: their tokens and answers to come, in groups of first turns."""

    groups: int = 0
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Admission:
    """At version v, at most (v + 1) * batch_groups groups and the lead exist or are being made.

    The lead is at most staleness * batch_groups, so a group started now is trained at version v + staleness
    at the latest. Source of this bound: `areal/infra/staleness_manager.py` of AReaL.

    Short answers do not wait for long games: up to `batch_groups` groups that play on do not count here, so a
    group may be trained one version later. And of `max_inflight`, they take what they still occupy.
    """

    lead: Lead
    max_inflight: int

    def to_start(self, counts: RunCounts, *, version: int, running: int, playing: Playing = Playing()) -> int:
        """How many of the positions that this process holds may start. `running` are in work, `playing` those
        of them that play on.

        >>> counts = RunCounts(accepted=90, untrained=90, pending=10)
        >>> lead = Lead(batch_groups=32, staleness=2, just_in_time=False)
        >>> Admission(lead, max_inflight=64).to_start(counts, version=0, running=4)
        2
        """
        ahead = self._accepted(counts, version) + running - self._uncounted(playing)
        return max(0, min(self._room(running, playing), self._bound(version) - ahead))

    def to_read(self, counts: RunCounts, *, version: int, held: int, playing: Playing = Playing()) -> int:
        """How many more positions may be read from the stream, if this process holds `held` already. The
        pending positions of all replicas count as running."""
        ahead = self._accepted(counts, version) + max(counts.pending, held) - self._uncounted(playing)
        return max(0, min(self._room(held, playing), self._bound(version) - ahead))

    def is_full(self, running: int, playing: Playing) -> bool:
        """Whether nothing more may be in work."""
        return self._room(running, playing) <= 0

    def _room(self, held: int, playing: Playing) -> int:
        return self.max_inflight - (held - playing.groups) - math.ceil(playing.load)

    def _uncounted(self, playing: Playing) -> int:
        return min(playing.groups, self.lead.batch_groups)

    def _bound(self, version: int) -> int:
        return (version + 1) * self.lead.batch_groups + self.lead.groups

    def _accepted(self, counts: RunCounts, version: int) -> int:
        # If Redis lost its counts, `accepted` is too small, and every group up to the bound would start.
        return max(counts.accepted, version * self.lead.batch_groups + counts.untrained)


@dataclass
class _Held:
    entry: Entry
    postponed: int = 0
    due: float = 0.0
    running: bool = False


class InFlight:
    """The positions that this process holds, by entry id, oldest first: in work, or until they are due. It
    uses neither Redis nor a clock, and guarantees that no entry is in work twice at once."""

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
