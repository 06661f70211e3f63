"""Reads groups from the `traces` stream, in order, and puts each into exactly one batch.

A thread reads and decodes ahead, so that a step does not wait for the network while groups are available.
A group is pending in Redis until `acknowledge`. Only `next_batch` decides whether a group was already used,
because Redis delivers entries again after it lost its last second of writes.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

import chess

from rookery.advantages import without_signal
from rookery.codec import decode_group
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError, Unavailable, WireError
from rookery.failpoints import reach
from rookery.metrics import ROLLOUT_WAIT_S, TRAINER_GROUPS
from rookery.streams import Entry, RunStreams
from rookery.trace import TraceGroup, Turn
from rookery.waits import STEP_S, waiting
from services.trainer.versions.commits import Commit

logger = logging.getLogger(__name__)

CONSUMER = "trainer"

BLOCK_S = 0.5
CLAIM_EVERY_S = 10.0
IDLE_S = 60.0
"""If an entry has been pending for so long and this trainer has not read it, its delivery was lost."""
REPORT_S = 5.0
"""How often a wait for groups is added to the metric, logged and reported through `while_waiting`."""

_LARGEST = 1e18
"""The largest reward whose square fits float32. Above it, deviations are infinite and advantages become 0."""


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """A group and the id of its stream entry, which must be acknowledged."""

    entry_id: str
    group: TraceGroup


class Intake:
    """Reads ahead by at most two batches. Use it as a context manager.

    It continues from `commit`. A group that fails `check_group`, or for which `check` raises SetupError, can
    never be trained on and is moved to `dead`.
    """

    def __init__(
        self,
        run: RunStreams,
        settings: TrainerSettings,
        commit: Commit,
        *,
        check: Callable[[TraceGroup], None],
        epoch: int,
        stopping: threading.Event,
    ) -> None:
        self._run, self._check, self._epoch, self._stopping = run, check, epoch, stopping
        self._batch_groups, self._max_staleness = settings.batch_groups, settings.max_staleness
        limit = settings.dynamic_sampling_limit if settings.dynamic_sampling else 0
        self._zero_variance_limit = settings.batch_groups * limit
        self._mean = settings.turn_rewards == "mean"
        self._ledger: Sequence[str] = commit.ledger
        self._dropped_before = commit.dropped
        self._ready: queue.Queue[PendingEntry] = queue.Queue(maxsize=2 * settings.batch_groups)
        self._left_over: dict[str, PendingEntry] = {}
        self._unacknowledged: set[str] = set()  # entry ids; written by both threads
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._read_ahead, name="intake", daemon=True)
        self.waited_s = 0.0
        self.dropped = {"stale": 0, "zero_variance": 0}
        """Groups dropped since the last commit, by reason, including those that this trainer dropped before
        a restart for a batch that it did not commit."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(timeout=5 * BLOCK_S)

    def next_batch(self, *, version: int, while_waiting: Callable[[], None]) -> list[PendingEntry] | None:
        """Returns the next groups fresh enough for a trainer at `version`, or None when stopping.

        Calls `while_waiting` every few seconds while no group arrives. An error of the reading thread is
        raised here. Raises `SetupError` if a group was sampled by a version that was never committed here.
        """
        batch, self._left_over = self._left_over, {}
        ledger_by_id = {item.partition(":")[0]: item for item in self._ledger}
        self._count_dropped()
        self.waited_s = 0.0
        while len(batch) < self._batch_groups:
            with waiting("groups", "the rollouts", expected_s=STEP_S):
                entry = self._next_entry(while_waiting)
            if entry is None:
                return None
            if recorded := ledger_by_id.get(entry.group.id):
                self._settle_trained(entry, recorded)
            elif accepted := batch.get(entry.group.id):
                self._drop_duplicate(entry, accepted)
            elif reason := self._drop_reason(entry.group, version):
                self.dropped[reason] += 1
                self._settle([entry.entry_id], f"dropped:{reason}")
            else:
                batch[entry.group.id] = entry
                if len(batch) == self._batch_groups:
                    self._drop_other_rewards(batch)
        if self.dropped["stale"]:
            logger.warning("dropped %d groups too old for version %d", self.dropped["stale"], version)
        return list(batch.values())

    @property
    def dropped_in_run(self) -> dict[str, int]:
        """The groups that the run dropped, by reason, up to the last batch handed out, for the commit."""
        return {reason: self._dropped_before[reason] + count for reason, count in self.dropped.items()}

    def acknowledge(self, batch: Sequence[PendingEntry], *, ledger: Sequence[str]) -> None:
        """Acknowledges a committed batch. `ledger` is the ledger of that commit."""
        self._ledger, self._dropped_before = ledger, self.dropped_in_run
        reach("trainer.committed")
        self._settle([entry.entry_id for entry in batch], "trained")
        reach("trainer.acknowledged")

    def reject(self, batch: Sequence[PendingEntry], reasons: Mapping[str, str]) -> None:
        """Moves the groups whose ids are in `reasons` to `dead`. The next batch begins with the others."""
        for entry in batch:
            if entry.group.id in reasons:
                self._move_to_dead(entry.entry_id, reasons[entry.group.id])
            else:
                self._left_over[entry.group.id] = entry

    def _move_to_dead(self, entry_id: str, reason: str) -> None:
        self._run.groups.dead_letter(entry_id, reason=reason)
        self._unacknowledged.discard(entry_id)
        TRAINER_GROUPS.labels(result="dead").inc()

    def _count_dropped(self) -> None:
        """Sets `dropped` to the run's count in Redis minus the last commit's, so that the count of an
        interrupted batch continues."""
        counted = self._run.counts().dropped
        committed = self._dropped_before
        self._dropped_before = {r: min(committed.get(r, 0), counted.get(r, 0)) for r in self.dropped}
        self.dropped = {r: counted.get(r, 0) - self._dropped_before[r] for r in self.dropped}

    def _drop_reason(self, group: TraceGroup, version: int) -> str | None:
        """Returns why a group is dropped, or None if it is trained on.

        Zero variance is a reason only up to a limit per batch, so that a policy that has nothing left to
        learn does not wait forever. Raises `SetupError` if the group was sampled by a version that was never
        committed here.
        """
        policies = [group.policy_of(turn) for turn in group.turns]
        newest = max(policies, key=lambda policy: policy.number)
        age = version - newest.number
        if age < 0:
            raise SetupError(
                f"group {group.id} was sampled by {newest.name}, but the newest version here is "
                f"{version}: restore the run's folder, or choose another --run"
            )
        if age > self._max_staleness:
            return "stale"
        if self.dropped["zero_variance"] < self._zero_variance_limit and without_signal(
            group.turn_rewards, mean=self._mean
        ):
            return "zero_variance"
        return None

    def _settle_trained(self, entry: PendingEntry, recorded: str) -> None:
        """Settles a group whose id is in the ledger, where its entry is `recorded`.

        If the answers are the same, the group was committed before a crash and not acknowledged: the weights
        include it. If they differ, Redis had lost the group and it was sampled again: it is dropped.
        """
        if recorded == ledger_entry(entry.group):
            self._settle([entry.entry_id], "trained", label="redelivered")
        else:
            self._settle([entry.entry_id], "dropped:remade")

    def _drop_other_rewards(self, batch: dict[str, PendingEntry]) -> None:
        """Removes groups that were judged before the run accepted another reward version."""
        others = self._run.groups.of_another_reward([entry.group for entry in batch.values()])
        for group in others:
            self._settle([batch.pop(group.id).entry_id], "dropped:reward_version")
        if others:
            logger.warning("dropped %d groups of reward version %s", len(others), others[0].reward_versions)

    def _drop_duplicate(self, entry: PendingEntry, accepted: PendingEntry) -> None:
        if entry.entry_id != accepted.entry_id:
            self._settle([entry.entry_id], "dropped:double")

    def _settle(self, entry_ids: list[str], result: str, *, label: str = "") -> None:
        """Settles entries under `result`; `label` is that of the metric, if it is another one."""
        label = label or result.removeprefix("dropped:")
        settled = self._run.groups.settle(entry_ids, result=result, epoch=self._epoch)
        if settled < len(entry_ids):
            logger.warning("%d of %d %s entries were acknowledged already", settled, len(entry_ids), label)
        self._unacknowledged.difference_update(entry_ids)
        TRAINER_GROUPS.labels(result=label).inc(len(entry_ids))

    def _next_entry(self, while_waiting: Callable[[], None]) -> PendingEntry | None:
        began = reported = time.perf_counter()
        try:
            while not self._stopping.is_set():
                if self._fault is not None:
                    raise self._fault
                try:
                    return self._ready.get(timeout=0.2)
                except queue.Empty:
                    now = time.perf_counter()
                if now - reported >= REPORT_S:
                    ROLLOUT_WAIT_S.inc(now - reported)
                    reported = now
                    logger.info("waiting for groups, %.0f s so far", now - began)
                    while_waiting()
            return None
        finally:
            now = time.perf_counter()
            ROLLOUT_WAIT_S.inc(now - reported)
            self.waited_s += now - began

    def _read_ahead(self) -> None:
        try:
            # First, the entries that this trainer read before a restart and did not acknowledge.
            self._queue_all(self._run.groups.read_held(consumer=CONSUMER, count=100_000))
            claimed_at = time.monotonic()
            while not self._stopping.is_set():
                self._queue_all(
                    self._run.groups.read_new(
                        consumer=CONSUMER,
                        count=self._batch_groups,
                        block_s=BLOCK_S,
                        known=self._unacknowledged.copy,
                    )
                )
                if time.monotonic() - claimed_at >= CLAIM_EVERY_S:
                    # Claims entries that are pending but that this trainer never received.
                    self._run.groups.keep(list(self._unacknowledged), consumer=CONSUMER)
                    idle = self._run.groups.claim_idle(consumer=CONSUMER, idle_s=IDLE_S)
                    self._queue_all([entry for entry in idle if entry.id not in self._unacknowledged])
                    claimed_at = time.monotonic()
        except BaseException as error:
            if isinstance(error, Unavailable) and self._stopping.is_set():
                return
            self._fault = error
            raise

    def _queue_all(self, entries: list[Entry]) -> None:
        for entry in entries:
            try:
                pending = PendingEntry(entry.id, decode_group(entry.data))
                check_group(pending.group)
                self._check(pending.group)
            except (WireError, SetupError, ArithmeticError) as error:
                self._move_to_dead(entry.id, str(error))
                continue
            self._unacknowledged.add(entry.id)
            self._put(pending)

    def _put(self, entry: PendingEntry) -> None:
        while not self._stopping.is_set():
            try:
                self._ready.put(entry, timeout=0.2)
            except queue.Full:
                continue
            return


def ledger_entry(group: TraceGroup) -> str:
    """Returns the entry of a group in a commit's ledger: its id and a digest of its answers."""
    answers = repr([turn.completion.token_ids for turn in group.turns])
    return f"{group.id}:{blake2b(answers.encode(), digest_size=8).hexdigest()}"


def check_group(group: TraceGroup) -> None:
    """Checks that a group was sampled from the whole distribution, has one reward version and a board, and
    that its numbers are finite. NaN is never read as 0.

    Raises:
        WireError: it was sampled greedily or with top_p or top_k, has several reward versions, or no board.
        ArithmeticError: a reward is too large or NaN, or a log-probability is not finite. The message names
            the group, the completion and the value.
    """
    drawn = group.sampling
    if not drawn.temperature > 0.0 or drawn.top_p != 1.0 or drawn.top_k > 0:
        raise WireError(
            f"group {group.id!r}: drawn at temperature {drawn.temperature!r} with top_p {drawn.top_p!r} and "
            f"top_k {drawn.top_k!r}; importance ratios need all tokens at a temperature above 0"
        )
    if len(group.reward_versions) > 1:
        raise WireError(f"group {group.id!r} has reward versions {', '.join(group.reward_versions)}")
    try:
        for fen in {group.prompt_of(turn).fen for turn in group.turns}:
            chess.Board(fen)
    except ValueError as error:
        raise WireError(f"group {group.id!r}: {error}") from error
    for slot, turn in enumerate(group.turns):
        _check_numbers(turn, place=f"completion {slot}", group=group.id)


def _check_numbers(turn: Turn, *, place: str, group: str) -> None:
    rewards = [turn.reward]
    if turn.verdict:
        claims = (claim for sentence in turn.verdict.sentences for claim in sentence.claims)
        steps = (*turn.verdict.process_rewards, *turn.verdict.value_rewards)
        rewards += [step.reward for step in steps]
        rewards += [claim.weight or 0.0 for claim in claims]
    if wrong := [reward for reward in rewards if not abs(reward) <= _LARGEST]:  # NaN compares false
        raise ArithmeticError(f"group {group}: reward of {place} is {wrong[0]!r}")
    logprobs = enumerate(turn.completion.logprobs)
    if bad := [(number, logprob) for number, logprob in logprobs if not math.isfinite(logprob)]:
        where = f"token {bad[0][0]} of {place}"
        raise ArithmeticError(f"group {group}: log-probability of {where} is {bad[0][1]!r}")
