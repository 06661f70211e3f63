"""Redis streams of one run: positions to rollouts, groups to the trainer, versions to everyone.

Every change of state is one Lua script, so that a retry after a
lost connection can neither lose nor double anything: a group is published if and only if its
position was still unacknowledged, and a group is counted if and only if it was still pending.

Keys, all prefixed `rookery:<run>:`
    positions   stream  entries until their group is published
    positions:faults  hash  entries at which work has failed, and how often; until they leave the stream
    traces      stream  entries until the trainer has committed or dropped them and the archive, if one
                        has joined, has written them
    dead        stream  what nobody could handle, with the reason: the newest `DEAD_LIMIT` entries
    policy      hash    the committed version: number, sha256, path, base_model
    counts      hash    generated, trained, dropped:<reason>, dead:<stream>, archive:<result>
    feed        hash    cursor of the seeded position order
    terms       hash    sizes that every member of the run must share, set by the first, and
                        reward_version:<task>, set by the first group
    epoch       string  raised by each trainer that starts; fences off the one before
    traces:archive   hash  the archive that has joined: its consumer group, how many settled entries the
                           stream keeps for it, and epoch:<consumer>, raised by each archiver that starts
    traces:settled   set   entries the trainer has settled and the archive has not written
    traces:archived  set   entries the archive has written and the trainer has not settled

`positions` and `traces` are never trimmed: producers wait for room instead. The trainer never waits for
the archive: what it settles beyond the archive's limit leaves unarchived, and is counted.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rookery.codec import encode_group, encode_position
from rookery.errors import Conflict, SetupError
from rookery.prompt import task_of
from rookery.streams import lua
from rookery.streams.account import Counts, Overview
from rookery.streams.backlog import Backlog
from rookery.streams.reader import Reader
from rookery.trace import Adapter, PolicyVersion, Position, TraceGroup

logger = logging.getLogger(__name__)

_REWARD_VERSION = "reward_version:"

DEAD_LIMIT = 1000
"""Entries of `dead`; older ones are deleted. `counts` goes on counting all of them."""


class RunStreams(Reader):
    """The streams of one run, with every step that an entry takes."""

    def __init__(self, url: str, run: str, *, stopping: threading.Event | None = None) -> None:
        super().__init__(url, run, stopping=stopping)
        script = self._redis.register_script
        self._feed, self._publish_group = script(lua.FEED), script(lua.PUBLISH_GROUP)
        self._count_fault = script(lua.COUNT_FAULT)
        self._dead_letter, self._settle = script(lua.DEAD_LETTER), script(lua.SETTLE)
        self._take_over = script(lua.TAKE_OVER)
        self._publish_policy, self._agree = script(lua.PUBLISH_POLICY), script(lua.AGREE)
        self._join_archive, self._archived = script(lua.JOIN_ARCHIVE), script(lua.ARCHIVED)
        self._backlog = script(lua.BACKLOG)

    def agree(self, terms: Mapping[str, int]) -> None:
        """Makes `terms` hold for the whole run, whoever comes first.

        Raises:
            SetupError: another member began the run with other values.
        """
        args = [part for name, value in sorted(terms.items()) for part in (name, str(value))]
        differing = self._call(lambda: self._agree(keys=[self.key("terms")], args=args))
        if not differing:
            return
        pairs = [value.decode() for value in cast(list[bytes], differing)]
        said = "; ".join(
            f"{name} is {agreed} there and {terms[name]} here"
            for name, agreed in zip(pairs[::2], pairs[1::2], strict=True)
        )
        raise SetupError(f"run {self.run!r} was begun with other sizes: {said}; name another run or agree")

    # positions

    def feed_cursor(self) -> int:
        """How many positions of the seeded order were ever added."""
        return int(self._call(lambda: self._redis.hget(self.key("feed"), "cursor")) or 0)

    def add_positions(self, positions: Sequence[Position], *, cursor: int) -> int:
        """Adds positions number `cursor` onwards, unless another feed was faster; the new cursor."""
        payload: list[str | bytes | int] = [cursor]
        for position in positions:
            payload += [position.id, encode_position(position)]
        keys = [self.key("positions"), self.key("feed")]
        return int(self._call(lambda: self._feed(keys=keys, args=payload)))

    # groups

    def publish_group(
        self, group: TraceGroup, *, entry_id: str, consumer_group: str, accept: str = ""
    ) -> bool:
        """Puts a complete group on `traces` and acknowledges its position; False if someone else did.

        Raises:
            Conflict: its reward version is not the run's so far, nor `accept`.
        """
        version = ", ".join(group.reward_versions)
        rewards = " ".join(f"{reward:.3f}" for reward in group.rewards)
        keys = [self.key(name) for name in ("positions", "traces", "counts", "positions:faults", "terms")]
        args: list[str | bytes | int] = [consumer_group, entry_id, group.id, group.policy.number]
        args += [rewards, encode_group(group), _REWARD_VERSION + _task(group), version, accept]
        published = self._call(lambda: self._publish_group(keys=keys, args=args))
        if isinstance(published, bytes):
            raise Conflict(
                f"run {self.run!r} has reward version {published.decode()!r} so far, group {group.id!r} "
                f"has {version!r}"
            )
        return bool(published)

    def of_another_reward(self, groups: Sequence[TraceGroup]) -> list[TraceGroup]:
        """Those whose reward version is not the run's any more."""
        terms = self._call(lambda: self._redis.hgetall(self.key("terms")))
        agreed = {k.decode(): v.decode() for k, v in cast(dict[bytes, bytes], terms).items()}
        return [g for g in groups if {agreed.get(_REWARD_VERSION + _task(g))} - {None, *g.reward_versions}]

    def count_fault(self, stream: str, entry_id: str, *, group: str) -> int:
        """Counts that work on a pending entry has failed; how often it has by now, whoever tried.

        0 if the entry is not pending any more.
        """
        keys = [self.key(stream), self.key(f"{stream}:faults")]
        return int(self._call(lambda: self._count_fault(keys=keys, args=[group, entry_id])))

    def settle(self, entry_ids: Sequence[str], *, group: str, result: str, epoch: int) -> int:
        """Acknowledges and deletes trace entries, counting those that were pending under `result`.

        Raises:
            Conflict: another trainer has taken over this run.
        """
        keys = [*self._shared_keys("traces"), self.key("epoch")]
        args: list[str | int] = [group, epoch, result, *entry_ids]
        settled = int(self._call(lambda: self._settle(keys=keys, args=args)))
        if settled < 0:
            raise Conflict(f"run {self.run!r}: another trainer has taken over from epoch {epoch}")
        return settled

    def dead_letter(self, stream: str, entry_id: str, *, group: str, reason: str) -> None:
        """Moves a held entry to `dead`, which keeps the newest `DEAD_LIMIT` of them, with the reason."""
        keys = [*self._shared_keys(stream), self.key("dead"), self.key(f"{stream}:faults")]
        args: list[str | int] = [group, entry_id, stream, reason, DEAD_LIMIT]
        self._call(lambda: self._dead_letter(keys=keys, args=args))
        logger.error("dead-lettered entry %s of %s: %s", entry_id, stream, reason)

    # the archive

    def join_archive(self, *, group: str, limit: int) -> None:
        """From now on `traces` keeps each entry until `group` has written it, `limit` settled ones at most.

        Raises:
            Conflict: another consumer group is this run's archive.
        """
        keys = self._shared_keys("traces")
        if not self._call(lambda: self._join_archive(keys=keys, args=[group, limit])):
            raise Conflict(f"run {self.run!r} has an archive that is not {group!r}")

    def take_over_archive(self, *, consumer: str) -> int:
        """Starts the epoch of an archiver of this name; an earlier one sees that its own is over."""
        return int(self._call(lambda: self._redis.hincrby(self.key("traces:archive"), f"epoch:{consumer}")))

    def archive_epoch(self, *, consumer: str) -> int:
        """The epoch of the archivers of this name; 0 when a Redis that lost its data knows of none."""
        return int(self._call(lambda: self._redis.hget(self.key("traces:archive"), f"epoch:{consumer}")) or 0)

    def archived(self, entry_ids: Sequence[str], *, group: str, result: str = "archived") -> int:
        """The archive is through with entries it held; how many of them it had not said so before."""
        keys, args = self._shared_keys("traces"), [group, result, *entry_ids]
        return int(self._call(lambda: self._archived(keys=keys, args=args)))

    def _shared_keys(self, stream: str) -> list[str]:
        parts = (stream, "counts", f"{stream}:archive", f"{stream}:settled", f"{stream}:archived")
        return [self.key(part) for part in parts]

    # policy

    def take_over(self) -> int:
        """Starts a trainer's epoch; every call of an earlier trainer is refused from now on.

        Groups astray are put right: counted as `dropped:lost`, or as generated if there are more than that.
        """
        keys = [*self._shared_keys("traces"), self.key("epoch")]
        epoch, astray = map(int, self._call(lambda: self._take_over(keys=keys)))
        if astray:
            logger.error("run %r: %d groups were astray; its account is corrected", self.run, astray)
        return epoch

    def publish_policy(self, adapter: Adapter, *, epoch: int) -> None:
        """Names the committed version.

        Raises:
            Conflict: another trainer has taken over this run.
        """
        keys = [self.key("policy"), self.key("epoch")]
        version = adapter.version
        args: list[str | int] = [epoch, version.number, version.sha256, adapter.path]
        args.append(adapter.base_model)
        if int(self._call(lambda: self._publish_policy(keys=keys, args=args))) < 0:
            raise Conflict(f"run {self.run!r}: another trainer has taken over from epoch {epoch}")

    def policy(self) -> Adapter | None:
        """The committed version, if any trainer has published one."""
        raw = self._call(lambda: self._redis.hgetall(self.key("policy")))
        if not raw:
            return None
        fields = {k.decode(): v.decode() for k, v in cast(dict[bytes, bytes], raw).items()}
        version = PolicyVersion(int(fields["number"]), fields["sha256"])
        return Adapter(version, fields["path"], fields["base_model"])

    # accounting

    def counts(self) -> Counts:
        """What became of every group so far."""
        raw = self._call(lambda: self._redis.hgetall(self.key("counts")))
        return Counts.read(cast(dict[bytes, bytes], raw))

    def overview(self) -> Overview:
        """Everything that is counted, read in one transaction."""

        def read() -> list[Any]:
            together = self._redis.pipeline(transaction=True)
            together.hgetall(self.key("counts"))
            together.hget(self.key("policy"), "number")
            for stream in ("positions", "traces", "dead"):
                together.xlen(self.key(stream))
            for through in ("settled", "archived"):
                together.scard(self.key(f"traces:{through}"))
            return together.execute()

        counts, committed, positions, traces, dead, kept, ahead = self._call(read)
        return Overview(
            Counts.read(counts),
            positions=positions,
            traces=traces - kept,
            dead=dead,
            committed=None if committed is None else int(committed),
            kept=kept,
            archived_ahead=ahead,
        )

    def backlog(self, stream: str) -> Backlog:
        """What waits in a stream, and for whom."""
        return Backlog.read(self._call(lambda: self._backlog(keys=self._shared_keys(stream))))


def _task(group: TraceGroup) -> str:
    return task_of(group.position, style=group.prompt.style) or "move"
