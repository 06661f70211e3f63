"""The Redis streams of one run: positions for the rollouts, groups for the trainer, versions for all.

Each change of state is one Lua script, so a retry after a lost connection neither loses nor duplicates
anything: a group is published if and only if its position is still unacknowledged, and it is counted if and
only if it is still pending.

`positions` and `traces` are never trimmed: producers wait for room instead. The trainer never waits for the
archive: entries settled beyond the archive's limit are deleted without being archived, and are counted.
ARCHITECTURE.md has a table of all keys.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, cast

import redis

from rookery.codec import decode_group, encode_group, encode_position
from rookery.errors import Conflict, SetupError, Unavailable
from rookery.prompt import task_of
from rookery.streams import lua
from rookery.streams.connection import RunConnection
from rookery.streams.dead import DeadLetters
from rookery.streams.state import Backlog, Counts, Overview
from rookery.streams.stream import Stream, shared_keys
from rookery.trace import Adapter, PolicyVersion, Position, TraceGroup

logger = logging.getLogger(__name__)

_REWARD_VERSION = "reward_version:"
_ROLLOUTS = "rollouts"


class RunStreams:
    """The streams of one run and its records in Redis, with a method for each change of state.

    `stopping` and `once` are those of `RunConnection`, which all parts share as `redis`.
    """

    def __init__(
        self, url: str, name: str, *, stopping: threading.Event | None = None, once: bool = False
    ) -> None:
        self.name = name
        self.redis = RunConnection(url, name, stopping=stopping, once=once)
        self.positions = Positions(self.redis)
        self.groups = Groups(self.redis)
        self.archive = Archive(self.redis)
        self.policy = PolicyRecord(self.redis)
        self.dead = DeadLetters(self.redis)

    def close(self) -> None:
        self.redis.close()

    def agree(self, terms: Mapping[str, int]) -> None:
        """Sets `terms` for the whole run, or checks them if another member has already set them. Raises
        `SetupError` if another member has set other values."""
        args = [part for name, value in sorted(terms.items()) for part in (name, str(value))]
        differing = self.redis.script(lua.AGREE, ["terms"], *args)
        if not differing:
            return
        pairs = [value.decode() for value in cast(list[bytes], differing)]
        differences = "; ".join(
            f"{name} is {agreed} in the run and {terms[name]} here"
            for name, agreed in zip(pairs[::2], pairs[1::2], strict=True)
        )
        raise SetupError(
            f"run {self.name!r} was started with other sizes: {differences}; "
            "name another run or use its sizes"
        )

    def take_over(self) -> int:
        """Starts a trainer's epoch and returns it. From now on, calls of earlier trainers are refused.

        Also corrects the account if groups are astray: missing groups are counted as `dropped:lost`. If there
        are more groups than were generated, `generated` is raised.
        """
        epoch, astray = map(int, self.redis.script(lua.TAKE_OVER, [*shared_keys("traces"), "epoch"]))
        if astray:
            logger.error("run %r: %d groups were astray; the counts are corrected", self.name, astray)
        return epoch

    def counts(self) -> Counts:
        """The number of groups so far, by result."""
        raw = self.redis.call(lambda client: client.hgetall(self.redis.key("counts")))
        return Counts.read(cast(dict[bytes, bytes], raw))

    def overview(self, *, atomic: bool = True) -> Overview:
        """All counts of the run, read in one transaction. Without `atomic`, a full Redis, which refuses
        transactions, is asked for one after the other."""
        key = self.redis.key

        def read(client: redis.Redis, *, transaction: bool = True) -> tuple[list[Any], bool]:
            pipeline = client.pipeline(transaction=transaction)
            pipeline.hgetall(key("counts"))
            pipeline.hmget(key("policy"), "number", "waiting", "last")
            for stream in ("positions", "traces", "dead"):
                pipeline.xlen(key(stream))
            for name in ("settled", "archived"):
                pipeline.scard(key(f"traces:{name}"))
            try:
                return pipeline.execute(), not transaction
            except redis.exceptions.OutOfMemoryError:
                if atomic or not transaction:
                    raise
                return read(client, transaction=False)

        numbers, full = self.redis.call(read)
        counts, (committed, waiting, last), positions, traces, dead, settled, archived = numbers
        return Overview(
            Counts.read(counts),
            positions=positions,
            traces=traces - settled,
            dead=dead,
            committed=None if committed is None else int(committed),
            waiting=int(waiting or 0),
            ended=last == b"1",
            kept=settled,
            archived_ahead=archived,
            full=full,
        )

    def backlog(self, stream: str) -> Backlog:
        """The entries and consumer groups of a stream."""
        return Backlog.read(self.redis.script(lua.BACKLOG, shared_keys(stream)))


class Positions(Stream):
    """The positions for the rollouts."""

    def __init__(self, redis: RunConnection) -> None:
        super().__init__(redis, "positions", group=_ROLLOUTS)

    def cursor(self) -> int:
        """How many positions of the seeded order have been added so far."""
        return int(self.redis.call(lambda client: client.hget(self.redis.key("feed"), "cursor")) or 0)

    def add(self, positions: Sequence[Position], *, cursor: int) -> int:
        """Adds the next positions of the seeded order.

        Adds nothing if the run's cursor is no longer `cursor`, because another feed was faster. Returns the
        run's new cursor.
        """
        payload: list[str | bytes | int] = [cursor]
        for position in positions:
            payload += [position.id, encode_position(position)]
        return int(self.redis.script(lua.FEED, ["positions", "feed"], *payload))

    def count_fault(self, entry_id: str) -> int:
        """Counts a failure of work on a pending entry. Returns the number of failures of all consumers since
        turns of it were last stored.

        Returns 0 if the entry is no longer pending.
        """
        names = ("positions", "positions:faults")
        return int(self.redis.script(lua.COUNT_FAULT, names, self._group, entry_id))

    def turns(self, entry_id: str) -> list[tuple[TraceGroup, str]]:
        """What is stored of the episodes of a position, each with what names it for `store_turns`: a group of
        the first turns, then one of each further turn, those of an episode in their order."""
        stored = cast(list[bytes], self.redis.script(lua.READ_TURNS, ["positions:turns"], entry_id))
        return [(decode_group(data, in_progress=True), _sha1(data)) for data in stored]

    def store_turns(
        self, entry_id: str, turns: TraceGroup, *, slot: int = 0, number: int = 0, after: str = ""
    ) -> str:
        """Stores turns of a position's episodes, so that they go on from them after any end of this process:
        the first turns of all, or turn `number` of episode `slot` alone. `after` names what is stored before
        it. Returns what names this; empty if nothing is stored, because the position is not pending.

        Whoever is first stores a turn, and all go on from it. Raises `Unavailable` if another turn is stored,
        or the one that this builds on is not: Redis may have lost it.
        """
        place, before, episodes = entry_id, "", len(turns.traces)
        if number:
            place, before = f"{entry_id}/{slot}.{number}", f"{entry_id}/{slot}.{number - 1}"
            before = entry_id if number == 1 else before
        data, names = encode_group(turns), ("positions", "positions:turns", "positions:faults")
        arguments = (self._group, entry_id, place, data, before, after, episodes)
        stored = self.redis.script(lua.STORE_TURNS, names, *arguments)
        if stored not in (None, data):
            raise Unavailable(f"other turns are stored of group {turns.id}")
        return _sha1(data) if stored else ""


class Groups(Stream):
    """The groups for the trainer."""

    def __init__(self, redis: RunConnection) -> None:
        super().__init__(redis, "traces", group="trainer")

    def publish(self, group: TraceGroup, *, entry_id: str, accept: str = "") -> bool:
        """Adds a complete group, and acknowledges `entry_id`, the entry of its position.

        Returns False, and adds nothing, if the position was already acknowledged. Raises `Conflict` if the
        group's reward version is neither the run's current one nor `accept`.
        """
        version = ", ".join(group.reward_versions)
        rewards = " ".join(f"{reward:.3f}" for reward in group.rewards)
        published = self.redis.script(
            lua.PUBLISH_GROUP,
            ("positions", "traces", "counts", "positions:faults", "terms", "positions:turns"),
            *(_ROLLOUTS, entry_id, group.id, group.policy.number, rewards, encode_group(group)),
            *(_REWARD_VERSION + _task_name(group), version, accept),
        )
        if isinstance(published, bytes):
            raise Conflict(
                f"run {self.redis.run!r} has reward version {published.decode()!r} so far, "
                f"group {group.id!r} has {version!r}"
            )
        return bool(published)

    def of_another_reward(self, groups: Sequence[TraceGroup]) -> list[TraceGroup]:
        """The groups whose reward version is no longer the run's."""
        agreed = self.redis.read_hash("terms")
        return [
            g for g in groups if {agreed.get(_REWARD_VERSION + _task_name(g))} - {None, *g.reward_versions}
        ]

    def settle(self, entry_ids: Sequence[str], *, result: str, epoch: int) -> int:
        """Acknowledges and deletes entries, and counts those that were still pending under `result`.

        An entry that the archive has not written yet stays in the stream for it. Returns the number counted.
        Raises `Conflict` if another trainer has taken over this run.
        """
        names = [*shared_keys("traces"), "epoch"]
        settled = int(self.redis.script(lua.SETTLE, names, self._group, epoch, result, *entry_ids))
        if settled < 0:
            raise _replaced(self.redis.run, epoch)
        return settled


class Archive(Stream):
    """The groups for the archive, which reads the stream of the trainer too."""

    def __init__(self, redis: RunConnection, *, group: str = "archive") -> None:
        super().__init__(redis, "traces", group=group)

    def join(self, *, limit: int) -> None:
        """From now on, the stream keeps entries until they are archived, at most `limit` settled ones. Raises
        `Conflict` if another consumer group is the archive of this run."""
        if not self.redis.script(lua.JOIN_ARCHIVE, shared_keys("traces"), self._group, limit):
            raise Conflict(f"run {self.redis.run!r} already has an archive, which is not {self._group!r}")

    def take_over(self, *, consumer: str) -> int:
        """Starts a new epoch for archivers of this name and returns it.

        An earlier archiver of this name can tell from `epoch` that it was replaced.
        """
        return int(self.redis.script(lua.TAKE_OVER_ARCHIVE, ["traces:archive"], f"epoch:{consumer}"))

    def epoch(self, *, consumer: str) -> int:
        """The current epoch of archivers of this name; 0 if there is none because Redis lost its data."""
        key = self.redis.key("traces:archive")
        return int(self.redis.call(lambda client: client.hget(key, f"epoch:{consumer}")) or 0)

    def acknowledge(self, entry_ids: Sequence[str], *, result: str = "archived") -> int:
        """Acknowledges entries for the archive, and deletes those that the trainer has settled.

        Returns how many were still pending; only these are counted under `result`.
        """
        return int(self.redis.script(lua.ARCHIVED, shared_keys("traces"), self._group, result, *entry_ids))


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """The version that the run's trainer has committed."""

    redis: RunConnection

    def publish(self, adapter: Adapter, *, epoch: int, last: bool = False) -> None:
        """Publishes the committed version, unless this trainer has published a later one already.

        After the `last` one, the trainer does no more steps, and nobody has to wait for them. Raises
        `Conflict` if another trainer has taken over this run.
        """
        version, names = adapter.version, ("policy", "epoch", "traces", "traces:settled")
        args = (epoch, version.number, version.sha256, adapter.path, adapter.base_model, int(last))
        if int(self.redis.script(lua.PUBLISH_POLICY, names, *args)) < 0:
            raise _replaced(self.redis.run, epoch)

    def read(self) -> Adapter | None:
        """The committed version, or None if no trainer has published one."""
        fields = self.redis.read_hash("policy")
        if not fields:
            return None
        version = PolicyVersion(int(fields["number"]), fields["sha256"])
        return Adapter(version, fields["path"], fields["base_model"])


def _sha1(data: bytes) -> str:
    return sha1(data, usedforsecurity=False).hexdigest()


def _replaced(run: str, epoch: int) -> Conflict:
    return Conflict(f"run {run!r}: another trainer has taken over from epoch {epoch}")


def _task_name(group: TraceGroup) -> str:
    return task_of(group.position, style=group.prompt.style) or "move"
