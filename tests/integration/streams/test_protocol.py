"""The scripts against a model of them, over random histories: repeated calls, crashes, rivals, rollbacks.

Hypothesis makes the histories and shortens one that fails; a longer search: `--hypothesis-profile=long`.
"""

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rookery.codec import decode_group, decode_position
from rookery.errors import Conflict
from rookery.streams import Entry, RunStreams
from rookery.trace import Adapter, PolicyVersion
from tests.builders import group, numbered_position

pytestmark = pytest.mark.redis

ROLLOUTS = st.sampled_from(["r1", "r2"])
ARCHIVERS = st.sampled_from(["a", "b"])
TRAINER, ARCHIVE = "trainer", "archive"
SOME = st.integers(0, 99)
"""Chooses one of a list, modulo its length."""


@dataclass
class Item:
    """An entry of `traces`, and who has it: "new" is nobody yet, "lost" nobody now, "done" is finished."""

    group: str
    trainer: str = "new"
    archive: str = "new"

    @property
    def archiver(self) -> str | None:
        """The archiver that holds it."""
        return None if self.archive in ("new", "lost", "done") else self.archive


@dataclass
class State:
    """What Redis should hold."""

    cursor: int = 0
    positions: dict[str, str] = field(default_factory=dict)
    """The holder of each entry, or "new" or "lost"."""
    traces: dict[str, Item] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)
    """How often each group was generated: more than once only if it was dead and put back."""
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each group was settled with each result."""
    written: set[str] = field(default_factory=set)
    """The entries that count as archived."""
    limit: int | None = None
    epoch: int = 0
    version: int | None = None
    replays: int = 0

    @property
    def kept(self) -> int:
        return sum(item.trainer == "done" for item in self.traces.values())

    def generate(self, entry: str, group: str) -> None:
        self.traces[entry] = Item(group)
        self.made[group] += 1
        self.counts["generated"] += 1

    def settle(self, entry: str, result: str) -> bool:
        item = self.traces.get(entry)
        if item is None or item.trainer != "held":
            return False
        self.counts[result] += 1
        self.outcomes[item.group, result] += 1
        if self.limit is not None and item.archive != "done":
            if item.archiver or self.kept < self.limit:
                item.trainer = "done"
                return True
            self.counts["archive:missed"] += 1
        del self.traces[entry]
        return True

    def archived(self, entry: str, result: str) -> bool:
        item = self.traces.get(entry)
        if item is None or not item.archiver:
            return False
        item.archive = "done"
        if self.limit is not None:  # Redis may have forgotten that the archive joined
            self.counts[f"archive:{result}"] += 1
        if result == "archived":
            self.written.add(entry)
        if item.trainer == "done":
            del self.traces[entry]
        return True


@dataclass
class Process:
    """A trainer or an archiver: its epoch, and the entries that it remembers, with their groups."""

    epoch: int
    consumer: str = "t"
    held: dict[str, str] = field(default_factory=dict)


class Protocol(RuleBasedStateMachine):
    """Each rule makes one call on Redis and on the model. `repeat` makes any earlier call once more."""

    url: str

    @initialize()
    def begin(self) -> None:
        self.streams = RunStreams(self.url, uuid.uuid4().hex)
        self.redis = redis.Redis.from_url(self.url)
        self.state = State()
        self.saved: tuple[dict[bytes, bytes], State] | None = None
        self.calls: list[Callable[[], None]] = []
        self.seen: dict[str, str] = {}
        """Every entry of `positions` that any process ever held, with the number of its position."""
        self.trainers: list[Process] = []
        self.archivers: list[Process] = []
        self.ledger: dict[str, str] = {}
        """The groups in the commits on disk, with their entries. Redis cannot lose them."""
        self.files: dict[str, str] = {}
        """The groups in the archive's files, with their entries. Redis cannot lose them either."""
        self.commits = 0

    def teardown(self) -> None:
        if hasattr(self, "streams"):
            self._finish()
            self.redis.close()
            self.streams.close()

    def call(self, act: Callable[[], None]) -> None:
        self.calls.append(act)
        act()

    # the feed and the rollouts

    @rule(count=st.integers(1, 4))
    def feed(self, count: int) -> None:
        first = self.state.cursor

        def act() -> None:
            before = self._ids("positions")
            cursor = self.streams.positions.add(
                [numbered_position(first + i) for i in range(count)], cursor=first
            )
            if self.state.cursor == first:
                self.state.cursor += count
                new = [entry for entry in self._ids("positions") if entry not in before]
                self.state.positions |= dict.fromkeys(new, "new")
            assert cursor == self.state.cursor

        self.call(act)

    @rule(consumer=ROLLOUTS, count=st.integers(1, 3))
    def deliver(self, consumer: str, count: int) -> None:
        """Also a reply that is lost: nothing tells the consumer apart from one that never got it."""
        self._remember(self._read("positions", "rollouts", consumer, count), consumer)

    @rule(consumer=ROLLOUTS)
    def claim(self, consumer: str) -> None:
        claimed = self.streams.positions.claim_idle(consumer=consumer, idle_s=0)
        for entry, holder in self.state.positions.items():
            if holder == "lost":
                self.state.positions[entry] = consumer
        self._remember(claimed, consumer)

    @rule(consumer=ROLLOUTS)
    def delete_consumer(self, consumer: str) -> None:
        """As an operator may."""
        self._delete_consumer("positions", "rollouts", consumer)
        for entry, holder in self.state.positions.items():
            if holder == consumer:
                self.state.positions[entry] = "lost"

    @rule(consumer=ROLLOUTS)
    def start_again(self, consumer: str) -> None:
        held = self.streams.positions.read_held(consumer=consumer)
        assert {e.id for e in held} == {e for e, who in self.state.positions.items() if who == consumer}

    @rule(count=st.integers(1, 4))
    def generate(self, count: int) -> None:
        """Groups for the rules below, which need some."""
        self.feed(count)
        self.deliver("r1", count)
        for entry in self.seen.keys() & self.state.positions.keys():
            self._publish(entry)

    @precondition(lambda self: self.seen)
    @rule(which=SOME)
    def publish(self, which: int) -> None:
        self._publish(list(self.seen)[which % len(self.seen)])

    def _publish(self, entry: str) -> None:
        def act() -> None:
            owed = self.state.positions.get(entry, "new") not in ("new", "lost")
            before = self._ids("traces")
            made = group(int(self.seen[entry]), version=self.state.version or 0)
            assert self.streams.groups.publish(made, entry_id=entry) == owed
            if owed:
                del self.state.positions[entry]
                (new,) = [entry for entry in self._ids("traces") if entry not in before]
                self.state.generate(new, made.id)

        self.call(act)

    @precondition(lambda self: self.seen)
    @rule(which=SOME)
    def give_up_position(self, which: int) -> None:
        entry = list(self.seen)[which % len(self.seen)]

        def act() -> None:
            self.streams.positions.dead_letter(entry, reason="a test")
            if self.state.positions.get(entry, "new") not in ("new", "lost"):
                del self.state.positions[entry]
                self.state.counts["dead:positions"] += 1
                letter = self.streams.dead.letters()[-1]
                assert (letter.stream, letter.entry) == ("positions", entry)
                assert decode_position(letter.data).id.rpartition(":")[2] == self.seen[entry]

        self.call(act)

    # trainers

    @rule()
    def start_trainer(self) -> None:
        epoch = self.streams.take_over()
        assert epoch not in {trainer.epoch for trainer in self.trainers}, "it would fence nobody"
        self.state.epoch = epoch
        self.trainers.append(Process(epoch))
        held = self.streams.groups.read_held(consumer="t")
        assert {e.id for e in held} == {e for e, item in self.state.traces.items() if item.trainer == "held"}
        self._hold(self.trainers[-1], held)

    @precondition(lambda self: self.trainers)
    @rule(count=st.integers(1, 4))
    def read_ahead(self, count: int) -> None:
        self._hold(self.trainers[-1], self._read("traces", TRAINER, "t", count))

    @precondition(lambda self: self.trainers)
    @rule()
    def claim_for_trainer(self) -> None:
        claimed = self.streams.groups.claim_idle(consumer="t", idle_s=0)
        for item in self.state.traces.values():
            if item.trainer == "lost":
                item.trainer = "held"
        assert all(self.state.traces[entry.id].trainer == "held" for entry in claimed)
        self._hold(self.trainers[-1], claimed)

    @rule()
    def delete_trainer(self) -> None:
        self._delete_consumer("traces", TRAINER, "t")
        for item in self.state.traces.values():
            if item.trainer == "held":
                item.trainer = "lost"

    @precondition(lambda self: self.trainers)
    @rule(count=st.integers(1, 4))
    def train_on(self, count: int) -> None:
        """The newest trainer reads, and commits what no commit has. It may never settle it."""
        self._commit(self.trainers[-1], count)

    def _commit(self, trainer: Process, count: int) -> None:
        self._hold(trainer, self._read("traces", TRAINER, "t", count))
        new = {name: entry for entry, name in trainer.held.items() if name not in self.ledger}
        if new:
            self.ledger |= new
            self.commits += 1

    @precondition(lambda self: self.trainers)
    @rule(which=SOME, result=st.sampled_from(["trained", "dropped:stale"]))
    def settle(self, which: int, result: str) -> None:
        self._settle(self.trainers[which % len(self.trainers)], result)

    def _settle(self, trainer: Process, result: str) -> None:
        entries = [e for e, name in trainer.held.items() if (name in self.ledger) == (result == "trained")]

        def act() -> None:
            with self._fenced(trainer):
                settled = self.streams.groups.settle(entries, result=result, epoch=trainer.epoch)
                assert settled == sum([self.state.settle(entry, result) for entry in entries])

        self.call(act)

    @precondition(lambda self: any(trainer.held for trainer in self.trainers))
    @rule(which=SOME)
    def give_up_group(self, which: int) -> None:
        held = [entry for trainer in self.trainers for entry in trainer.held]
        entry = held[which % len(held)]

        def act() -> None:
            self.streams.groups.dead_letter(entry, reason="a test")
            item = self.state.traces.get(entry)
            if item and self.state.settle(entry, "dead:traces"):
                letter = self.streams.dead.letters()[-1]
                assert (letter.stream, letter.entry) == ("traces", entry)
                assert decode_group(letter.data).id == item.group

        self.call(act)

    @precondition(lambda self: self.trainers)
    @rule(which=SOME)
    def publish_version(self, which: int) -> None:
        trainer, number = self.trainers[which % len(self.trainers)], self.commits

        def act() -> None:
            before = self.streams.policy.read()
            with self._fenced(trainer):
                adapter = Adapter(PolicyVersion(number, "aa"), f"/a/{number}", "tiny")
                self.streams.policy.publish(adapter, epoch=trainer.epoch)
                self.state.version = max(number, self.state.version or 0)
            after = self.streams.policy.read()
            assert before is None or (after and after.version.number >= before.version.number)

        self.call(act)

    # the archive

    @rule(consumer=ARCHIVERS, limit=st.integers(0, 3))
    def start_archiver(self, consumer: str, limit: int) -> None:
        """One joins or starts again. It leaves without a word: it is not heard of any more."""
        epoch = self.streams.archive.take_over(consumer=consumer)
        assert epoch not in {archiver.epoch for archiver in self.archivers}, "it would replace nobody"
        self.archivers.append(Process(epoch, consumer))
        self._join(limit)
        held = self.streams.archive.read_held(consumer=consumer)
        assert {e.id for e in held} == {e for e, i in self.state.traces.items() if i.archiver == consumer}
        self._hold(self.archivers[-1], held)

    def _join(self, limit: int) -> None:
        def act() -> None:
            self.streams.archive.join(limit=limit)
            if self.state.limit is None:
                unarchived = sum(item.archive != "done" for item in self.state.traces.values())
                self.state.counts["archive:before"] = self.state.counts["generated"] - unarchived
            self.state.limit = limit

        self.call(act)

    @precondition(lambda self: self.archivers)
    @rule(which=SOME, count=st.integers(1, 4))
    def archive(self, which: int, count: int) -> None:
        archiver = self.archivers[which % len(self.archivers)]
        self._hold(archiver, self._read("traces", ARCHIVE, archiver.consumer, count))

    @precondition(lambda self: self.archivers and self.state.limit is not None)
    @rule(which=SOME)
    def claim_for_archive(self, which: int) -> None:
        """Entries of an archiver that has left, or is only slow. One always joins again before it claims."""
        archiver = self.archivers[which % len(self.archivers)]
        claimed = self.streams.archive.claim_idle(consumer=archiver.consumer, idle_s=0)
        for item in self.state.traces.values():
            if item.archive == "lost":
                item.archive = archiver.consumer
        for entry in claimed:
            assert self.state.traces[entry.id].archiver
            self.state.traces[entry.id].archive = archiver.consumer
        self._hold(archiver, claimed)

    @rule(consumer=ARCHIVERS)
    def delete_archiver(self, consumer: str) -> None:
        self._delete_consumer("traces", ARCHIVE, consumer)
        for item in self.state.traces.values():
            if item.archive == consumer:
                item.archive = "lost"

    @precondition(lambda self: self.archivers)
    @rule(which=SOME)
    def write_file(self, which: int) -> None:
        """One writes what it holds, unless it was replaced, and may never say so. Each group once."""
        archiver = self.archivers[which % len(self.archivers)]
        if self.streams.archive.epoch(consumer=archiver.consumer) == archiver.epoch:
            self.files |= {name: e for e, name in archiver.held.items() if name not in self.files}

    @precondition(lambda self: self.archivers)
    @rule(which=SOME)
    def acknowledge_files(self, which: int) -> None:
        held = self.archivers[which % len(self.archivers)].held.items()
        for result in ("archived", "duplicate"):
            entries = [
                entry
                for entry, name in held
                if name in self.files and (self.files[name] == entry) == (result == "archived")
            ]

            def act(entries: list[str] = entries, result: str = result) -> None:
                through = self.streams.archive.acknowledge(entries, result=result)
                assert through == sum([self.state.archived(entry, result) for entry in entries])

            if entries:
                self.call(act)

    @rule(which=SOME)
    def replay_dead(self, which: int) -> None:
        letters = self.streams.dead.letters()
        if not letters:
            return
        letter = letters[which % len(letters)]

        def act() -> None:
            before, there = self._ids(letter.stream), letter.id in self._ids("dead")
            assert self.streams.dead.replay(letter) == there
            assert letter.id not in self._ids("dead")
            if not there:
                return
            (new,) = [entry for entry in self._ids(letter.stream) if entry not in before]
            self.state.replays += 1
            if letter.stream == "positions":
                self.state.positions[new] = "new"
            else:
                self.state.generate(new, decode_group(letter.data).id)

        self.call(act)

    @rule(which=SOME)
    def drop_dead(self, which: int) -> None:
        letters = self.streams.dead.letters()
        if not letters:
            return
        letter = letters[which % len(letters)]

        def act() -> None:
            there = letter.id in self._ids("dead")
            assert self.streams.dead.drop(letter) == there
            assert letter.id not in self._ids("dead")

        self.call(act)

    # faults

    @precondition(lambda self: self.calls)
    @rule(which=SOME)
    def repeat(self, which: int) -> None:
        """A reply was lost, and the caller tries again; or the network delivers an old call only now."""
        self.calls[which % len(self.calls)]()

    @rule()
    def save(self) -> None:
        keys = self.redis.keys(self.streams.redis.key("*"))
        self.saved = {key: self.redis.dump(key) for key in keys}, deepcopy(self.state)

    @precondition(lambda self: self.saved)
    @rule()
    def roll_back(self) -> None:
        """Redis forgets what it was told since. Processes, commits and files do not."""
        assert self.saved
        dumps, state = self.saved
        if keys := self.redis.keys(self.streams.redis.key("*")):
            self.redis.delete(*keys)
        for key, value in dumps.items():
            self.redis.restore(key, 0, value)
        self.state, self.saved = deepcopy(state), None

    # what holds at any moment

    @invariant()
    def redis_is_as_the_model_says(self) -> None:
        if not hasattr(self, "streams"):
            return
        run, state = self.streams.overview(), self.state
        assert self._ids("positions") == list(state.positions), "nothing that is owed is deleted"
        assert self._ids("traces") == list(state.traces)
        assert (run.astray, run.archive_astray) == (0, 0)
        assert (run.kept, run.traces) == (state.kept, len(state.traces) - state.kept)
        counts = {k.decode(): int(v) for k, v in self.redis.hgetall(self.streams.redis.key("counts")).items()}
        assert {name: n for name, n in counts.items() if n} == {n: c for n, c in state.counts.items() if c}
        assert run.committed == state.version
        trained = {name: times for (name, result), times in state.outcomes.items() if result == "trained"}
        assert set(trained.values()) <= {1}, "one effect per group"
        assert trained.keys() <= self.ledger.keys(), "what counts as trained is in a commit"
        assert state.written <= set(self.files.values()), "what counts as archived is in a file"

    def _finish(self) -> None:
        """After all faults: every position that was fed has one outcome, and nothing is left over."""
        self.start_trainer()
        self.claim_for_trainer()  # what no consumer has any more
        self.start_trainer()  # it gets all that it holds
        if self.state.limit is not None:
            self.start_archiver("a", 99)
        self.deliver("r1", 999)
        while self.state.positions:
            self.claim("r1")  # of some: a claim is limited
            for entry in self.seen.keys() & self.state.positions.keys():
                self._publish(entry)
        self._commit(self.trainers[-1], 999)
        self._settle(self.trainers[-1], "trained")
        if self.state.limit is not None:
            self.archive(-1, 999)
            while self.state.traces:
                self.claim_for_archive(-1)  # the first of all that are held, its own too
                self.write_file(-1)
                self.acknowledge_files(-1)
            assert self.state.counts["archive:archived"] <= len(self.state.written), "the others are `before`"
        run = self.streams.overview()
        assert (run.positions, run.traces, run.kept, run.archived_ahead) == (0, 0, 0, 0)
        assert (run.astray, run.archive_astray) == (0, 0)
        assert run.counts.generated == run.counts.settled
        ends = Counter[str]()
        for (name, _), times in self.state.outcomes.items():
            ends[name] += times
        assert ends == self.state.made, "each group has one outcome each time that it was generated"
        outcomes = run.counts.generated + run.counts.dead.get("positions", 0)
        assert outcomes == self.streams.positions.cursor() + self.state.replays

    # reading

    def _read(self, stream: str, consumer_group: str, consumer: str, count: int) -> list[Entry]:
        """New entries: those that the model has for the group. Where it has none, a read would only wait."""
        holders, reader = self.state.positions, self.streams.positions
        if stream == "traces":
            reader = self.streams.archive if consumer_group == ARCHIVE else self.streams.groups
            holders = {e: getattr(item, consumer_group) for e, item in self.state.traces.items()}
        new = [entry for entry, holder in holders.items() if holder == "new"][:count]
        entries: list[Entry] = []
        while new and not entries:  # the first call creates a missing group
            entries = reader.read(consumer=consumer, count=count, block_s=1.0)
        assert [entry.id for entry in entries] == new
        for entry in new:
            if stream == "traces":
                holder = "held" if consumer_group == TRAINER else consumer
                setattr(self.state.traces[entry], consumer_group, holder)
            else:
                self.state.positions[entry] = consumer
        return entries

    def _remember(self, entries: list[Entry], consumer: str) -> None:
        for entry in entries:
            assert self.state.positions[entry.id] != "new"
            self.state.positions[entry.id] = consumer
            self.seen[entry.id] = decode_position(entry.data).id.rpartition(":")[2]

    def _hold(self, process: Process, entries: list[Entry]) -> None:
        process.held |= {entry.id: decode_group(entry.data).id for entry in entries}

    def _delete_consumer(self, stream: str, consumer_group: str, consumer: str) -> None:
        with contextlib.suppress(redis.ResponseError):  # there is no such group yet
            self.redis.xgroup_delconsumer(self.streams.redis.key(stream), consumer_group, consumer)

    def _ids(self, stream: str) -> list[str]:
        return [entry.decode() for entry, _ in self.redis.xrange(self.streams.redis.key(stream))]

    @contextlib.contextmanager
    def _fenced(self, trainer: Process) -> Iterator[None]:
        """The block changes something if the trainer's epoch is the run's, and is refused otherwise."""
        refused = False
        try:
            yield
        except Conflict:
            refused = True
        assert refused == (trainer.epoch != self.state.epoch)


def test_any_history_leaves_what_the_model_says(redis_url: str) -> None:
    class OnThisRedis(Protocol):
        url = redis_url

    run_state_machine_as_test(OnThisRedis)
