"""The Redis streams of one run: positions for the rollouts, groups for the trainer, versions for all.

Each change of state is one Lua script, so a retry after a lost connection neither loses nor duplicates
anything: a group is published if and only if its position is still unacknowledged, and it is counted if and
only if it is still pending.

Keys, all prefixed `rookery:<run>:`
    positions   stream  entries until their group is published
    positions:faults  hash  how often work on an entry has failed, until the entry leaves the stream
    traces      stream  entries until the trainer has committed or dropped them and the archive, if one
                        has joined, has written them
    dead        stream  entries that could not be processed, with the reason: the newest `DEAD_LIMIT`
    policy      hash    the committed version: number, sha256, path, base_model, the epoch of its trainer,
                        whether it is the run's last, and how many groups were waiting when it was published
    counts      hash    generated, trained, dropped:<reason>, dead:<stream>, archive:<result>
    feed        hash    cursor: how many positions of the seeded order have been fed
    terms       hash    sizes that all members of the run must share, set by the first member, and
                        reward_version:<task>, set by the first group
    epoch       string  when the newest trainer started, in microseconds; calls with another epoch are refused
    traces:archive   hash  the archive that has joined: its consumer group, how many settled entries the
                           stream keeps for it, and epoch:<consumer>, when the newest of this name started
    traces:settled   set   entries the trainer has settled and the archive has not written
    traces:archived  set   entries the archive has written and the trainer has not settled

`positions` and `traces` are never trimmed: producers wait for room instead. The trainer never waits for the
archive: entries settled beyond the archive's limit are deleted without being archived, and are counted.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rookery.codec import encode_group, encode_position
from rookery.errors import Conflict, SetupError
from rookery.prompt import task_of
from rookery.streams import lua
from rookery.streams.reader import DeadLetters, shared_keys
from rookery.streams.state import Backlog, Counts, Overview
from rookery.trace import Adapter, PolicyVersion, Position, TraceGroup

logger = logging.getLogger(__name__)

_REWARD_VERSION = "reward_version:"

_EQUAL = 1e-9
"""A smaller standard deviation of rewards is only rounding."""


class RunStreams(DeadLetters):
    """The streams of one run, with a method for each change of state."""

    def agree(self, terms: Mapping[str, int]) -> None:
        """Sets `terms` for the whole run, or checks them if another member has already set them.

        Raises:
            SetupError: another member has set other values.
        """
        args = [part for name, value in sorted(terms.items()) for part in (name, str(value))]
        differing = self._script(lua.AGREE, ["terms"], *args)
        if not differing:
            return
        pairs = [value.decode() for value in cast(list[bytes], differing)]
        differences = "; ".join(
            f"{name} is {agreed} in the run and {terms[name]} here"
            for name, agreed in zip(pairs[::2], pairs[1::2], strict=True)
        )
        raise SetupError(
            f"run {self.run!r} was started with other sizes: {differences}; name another run or use its sizes"
        )

    # positions

    def feed_cursor(self) -> int:
        """How many positions of the seeded order have been added so far."""
        return int(self._call(lambda: self._redis.hget(self.key("feed"), "cursor")) or 0)

    def add_positions(self, positions: Sequence[Position], *, cursor: int) -> int:
        """Adds the next positions of the seeded order.

        Adds nothing if the run's cursor is no longer `cursor`, because another feed was faster. Returns the
        run's new cursor.
        """
        payload: list[str | bytes | int] = [cursor]
        for position in positions:
            payload += [position.id, encode_position(position)]
        return int(self._script(lua.FEED, ["positions", "feed"], *payload))

    # groups

    def publish_group(
        self, group: TraceGroup, *, entry_id: str, consumer_group: str, accept: str = ""
    ) -> bool:
        """Adds a complete group to `traces` and acknowledges its position.

        Returns False, and adds nothing, if the position was already acknowledged.

        Raises:
            Conflict: the group's reward version is neither the run's current one nor `accept`.
        """
        version = ", ".join(group.reward_versions)
        rewards = " ".join(f"{reward:.3f}" for reward in group.rewards)
        names = ("positions", "traces", "counts", "positions:faults", "terms")
        published = self._script(
            lua.PUBLISH_GROUP,
            names,
            *(consumer_group, entry_id, group.id, group.policy.number, rewards, encode_group(group)),
            *(_REWARD_VERSION + _task_name(group), version, accept),
        )
        if isinstance(published, bytes):
            raise Conflict(
                f"run {self.run!r} has reward version {published.decode()!r} so far, group {group.id!r} "
                f"has {version!r}"
            )
        return bool(published)

    def of_another_reward(self, groups: Sequence[TraceGroup]) -> list[TraceGroup]:
        """The groups whose reward version is no longer the run's."""
        terms = self._call(lambda: self._redis.hgetall(self.key("terms")))
        agreed = {k.decode(): v.decode() for k, v in cast(dict[bytes, bytes], terms).items()}
        return [
            g for g in groups if {agreed.get(_REWARD_VERSION + _task_name(g))} - {None, *g.reward_versions}
        ]

    def count_fault(self, stream: str, entry_id: str, *, group: str) -> int:
        """Counts a failure of work on a pending entry. Returns the number of failures of all consumers.

        Returns 0 if the entry is no longer pending.
        """
        return int(self._script(lua.COUNT_FAULT, [stream, f"{stream}:faults"], group, entry_id))

    def settle(self, entry_ids: Sequence[str], *, group: str, result: str, epoch: int) -> int:
        """Acknowledges and deletes trace entries, and counts those that were still pending under `result`.

        An entry that the archive has not written yet stays in the stream for it. Returns the number counted.

        Raises:
            Conflict: another trainer has taken over this run.
        """
        names = [*shared_keys("traces"), "epoch"]
        settled = int(self._script(lua.SETTLE, names, group, epoch, result, *entry_ids))
        if settled < 0:
            raise Conflict(f"run {self.run!r}: another trainer has taken over from epoch {epoch}")
        return settled

    # the archive

    def join_archive(self, *, group: str, limit: int) -> None:
        """From now on, `traces` keeps entries until `group` has archived them, at most `limit` settled ones.

        Raises:
            Conflict: another consumer group is the archive of this run.
        """
        if not self._script(lua.JOIN_ARCHIVE, shared_keys("traces"), group, limit):
            raise Conflict(f"run {self.run!r} already has an archive, which is not {group!r}")

    def take_over_archive(self, *, consumer: str) -> int:
        """Starts a new epoch for archivers of this name and returns it.

        An earlier archiver of this name can tell from `archive_epoch` that it was replaced.
        """
        return int(self._script(lua.TAKE_OVER_ARCHIVE, ["traces:archive"], f"epoch:{consumer}"))

    def archive_epoch(self, *, consumer: str) -> int:
        """The current epoch of archivers of this name; 0 if there is none because Redis lost its data."""
        return int(self._call(lambda: self._redis.hget(self.key("traces:archive"), f"epoch:{consumer}")) or 0)

    def archived(self, entry_ids: Sequence[str], *, group: str, result: str = "archived") -> int:
        """Acknowledges entries for the archive, and deletes those that the trainer has settled.

        Returns how many were still pending; only these are counted under `result`.
        """
        return int(self._script(lua.ARCHIVED, shared_keys("traces"), group, result, *entry_ids))

    # policy

    def take_over(self) -> int:
        """Starts a trainer's epoch and returns it. From now on, calls of earlier trainers are refused.

        Also corrects the account if groups are astray: missing groups are counted as `dropped:lost`. If there
        are more groups than were generated, `generated` is raised.
        """
        epoch, astray = map(int, self._script(lua.TAKE_OVER, [*shared_keys("traces"), "epoch"]))
        if astray:
            logger.error("run %r: %d groups were astray; the counts are corrected", self.run, astray)
        return epoch

    def publish_policy(self, adapter: Adapter, *, epoch: int, last: bool = False) -> None:
        """Publishes the committed version, unless this trainer has published a later one already.

        After the `last` one, the trainer does no more steps, and nobody has to wait for them.

        Raises:
            Conflict: another trainer has taken over this run.
        """
        version, names = adapter.version, ("policy", "epoch", "traces", "traces:settled")
        args = (epoch, version.number, version.sha256, adapter.path, adapter.base_model, int(last))
        if int(self._script(lua.PUBLISH_POLICY, names, *args)) < 0:
            raise Conflict(f"run {self.run!r}: another trainer has taken over from epoch {epoch}")

    def policy(self) -> Adapter | None:
        """The committed version, or None if no trainer has published one."""
        raw = self._call(lambda: self._redis.hgetall(self.key("policy")))
        if not raw:
            return None
        fields = {k.decode(): v.decode() for k, v in cast(dict[bytes, bytes], raw).items()}
        version = PolicyVersion(int(fields["number"]), fields["sha256"])
        return Adapter(version, fields["path"], fields["base_model"])

    # accounting

    def counts(self) -> Counts:
        """The number of groups so far, by result."""
        raw = self._call(lambda: self._redis.hgetall(self.key("counts")))
        return Counts.read(cast(dict[bytes, bytes], raw))

    def overview(self) -> Overview:
        """All counts of the run, read in one transaction."""

        def read() -> list[Any]:
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.hgetall(self.key("counts"))
            pipeline.hmget(self.key("policy"), "number", "waiting", "last")
            for stream in ("positions", "traces", "dead"):
                pipeline.xlen(self.key(stream))
            for name in ("settled", "archived"):
                pipeline.scard(self.key(f"traces:{name}"))
            return pipeline.execute()

        counts, (committed, waiting, last), positions, traces, dead, settled, archived = self._call(read)
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
        )

    def backlog(self, stream: str) -> Backlog:
        """The entries and consumer groups of a stream."""
        return Backlog.read(self._script(lua.BACKLOG, shared_keys(stream)))


def _task_name(group: TraceGroup) -> str:
    return task_of(group.position, style=group.prompt.style) or "move"
