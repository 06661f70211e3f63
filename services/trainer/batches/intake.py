"""Groups from the `traces` stream, in order, each exactly once into a batch.

A thread of its own reads and decodes ahead, so that a step never waits for the network when
groups are there. What it hands out stays pending in Redis until `settle`. Who has had which group is
decided in one place, `next_batch`, because a Redis that lost its last second delivers again.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from rookery.codec import decode_group
from rookery.errors import SetupError, Unavailable, WireError
from rookery.metrics import ROLLOUT_WAIT_S, TRAINER_GROUPS
from rookery.streams import Entry, RunStreams
from rookery.trace import TraceGroup
from services.trainer.batches.advantages import zero_variance

logger = logging.getLogger(__name__)

STREAM = "traces"
GROUP = "trainer"
CONSUMER = "trainer"

BLOCK_S = 0.5
KEEP_EVERY_S = 10.0
IDLE_S = 60.0
"""A pending entry nobody held for so long was delivered to nobody: its delivery was lost on the way."""
REPORT_S = 5.0
"""How often a wait for groups is accounted for, and its caller told."""


@dataclass(frozen=True, slots=True)
class Held:
    """A group and the stream entry that must be settled for it."""

    entry_id: str
    group: TraceGroup


class Intake:
    """Reads ahead by at most two batches. Use as a context manager.

    `check` raises SetupError or ArithmeticError for a group that can never be trained on; it goes to `dead`.
    """

    def __init__(
        self,
        streams: RunStreams,
        *,
        batch_groups: int,
        max_staleness: int,
        check: Callable[[TraceGroup], None],
        zero_variance_limit: int = 0,
        ledger: Sequence[str],
        dropped_before: Mapping[str, int],
        epoch: int,
        stopping: threading.Event,
    ) -> None:
        self._streams = streams
        self._batch_groups = batch_groups
        self._max_staleness = max_staleness
        self._check = check
        self._zero_variance_limit = zero_variance_limit
        self._ledger = ledger
        self._dropped_before = dropped_before
        self._epoch = epoch
        self._stopping = stopping
        self._ready: queue.Queue[Held] = queue.Queue(maxsize=2 * batch_groups)
        self._begun: dict[str, Held] = {}
        self._holding: set[str] = set()  # entries read and not settled; written by both threads
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self.waited_s = 0.0
        self.dropped = {"stale": 0, "zero_variance": 0}
        """Since the last commit, by reason: also what an earlier life dropped for the batch it never made."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(timeout=5 * BLOCK_S)

    def next_batch(self, *, version: int, while_waiting: Callable[[], None]) -> list[Held] | None:
        """The next groups fresh enough for a trainer at `version`; None once stopping.

        `while_waiting` is called every few seconds as long as no group comes.

        Raises:
            SetupError: a group is of a version that was never committed here.
        """
        batch, self._begun = self._begun, {}
        trained = {entry.partition(":")[0]: entry for entry in self._ledger}
        self._count_dropped()
        self.waited_s = 0.0
        while len(batch) < self._batch_groups:
            held = self._take(while_waiting)
            if held is None:
                return None
            if (known := trained.get(held.group.id)) is not None:
                self._settle_known(held, known)
            elif held.group.id in batch:
                self._forget_double(held, batch[held.group.id])
            elif (reason := self._unfit(held.group, version)) is not None:
                self.dropped[reason] += 1
                self._settle([held.entry_id], f"dropped:{reason}", label=reason)
            else:
                batch[held.group.id] = held
                if len(batch) == self._batch_groups:
                    self._drop_other_rewards(batch)
        if self.dropped["stale"]:
            logger.warning("dropped %d groups too old for version %d", self.dropped["stale"], version)
        return list(batch.values())

    @property
    def account(self) -> dict[str, int]:
        """The run's dropped groups by reason, up to the batch handed out last: the commit's."""
        return {reason: self._dropped_before[reason] + count for reason, count in self.dropped.items()}

    def settle(self, batch: Sequence[Held], *, ledger: Sequence[str]) -> None:
        """Acknowledges a committed batch; `ledger` is the commit's."""
        self._ledger, self._dropped_before = ledger, self.account
        self._settle([held.entry_id for held in batch], "trained", label="trained")

    def give_up(self, batch: Sequence[Held], reasons: Mapping[str, str]) -> None:
        """Moves the groups of `reasons`, by id, to `dead`; the next batch begins with the others."""
        for held in batch:
            if held.group.id in reasons:
                self._bury(held.entry_id, reasons[held.group.id])
            else:
                self._begun[held.group.id] = held

    def _bury(self, entry_id: str, reason: str) -> None:
        self._streams.dead_letter(STREAM, entry_id, group=GROUP, reason=reason)
        self._holding.discard(entry_id)
        TRAINER_GROUPS.labels(result="dead").inc()

    def _count_dropped(self) -> None:
        """Begins with what the run's account holds beyond the last commit's: a batch that a kill cut short
        goes on counting where it was."""
        now = self._streams.counts().dropped
        before = self._dropped_before
        self._dropped_before = {r: min(before.get(r, 0), now.get(r, 0)) for r in self.dropped}
        self.dropped = {r: now.get(r, 0) - self._dropped_before[r] for r in self.dropped}

    def _unfit(self, group: TraceGroup, version: int) -> str | None:
        """Why a group is not trained on, if so. Zero variance is a reason only up to the limit of a batch:
        a policy that has nothing left to learn must not wait for ever.

        Raises:
            SetupError: it is of a version that was never committed here.
        """
        age = version - group.policy.number
        if age < 0:
            raise SetupError(
                f"group {group.id} is of {group.policy.name}, and the newest version here is {version}: "
                "bring the run's folder back, or choose another --run"
            )
        if age > self._max_staleness:
            return "stale"
        if self.dropped["zero_variance"] < self._zero_variance_limit and zero_variance(group.rewards):
            return "zero_variance"
        return None

    def _settle_known(self, held: Held, known: str) -> None:
        """A group whose id is in the ledger, which has `known` of it.

        Committed before a crash and never acknowledged, its effect is in the weights. Made again, with other
        answers, because Redis had lost it, it is not.
        """
        if known == ledger_entry(held.group):
            self._settle([held.entry_id], "trained", label="redelivered")
        else:
            self._settle([held.entry_id], "dropped:remade", label="remade")

    def _drop_other_rewards(self, batch: dict[str, Held]) -> None:
        """Takes out what was judged before the run accepted another reward version."""
        others = self._streams.of_another_reward([held.group for held in batch.values()])
        for group in others:
            self._settle([batch.pop(group.id).entry_id], "dropped:reward_version", label="reward_version")
        if others:
            logger.warning("dropped %d groups of reward version %s", len(others), others[0].reward_versions)

    def _forget_double(self, held: Held, first: Held) -> None:
        if held.entry_id != first.entry_id:
            self._settle([held.entry_id], "dropped:double", label="double")

    def _settle(self, entry_ids: list[str], result: str, *, label: str) -> None:
        settled = self._streams.settle(entry_ids, group=GROUP, result=result, epoch=self._epoch)
        if settled < len(entry_ids):
            logger.warning("%d of %d %s entries were settled already", settled, len(entry_ids), label)
        self._holding.difference_update(entry_ids)
        TRAINER_GROUPS.labels(result=label).inc(len(entry_ids))

    def _take(self, while_waiting: Callable[[], None]) -> Held | None:
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
                    logger.info("waits for groups since %.0f s", now - began)
                    while_waiting()
            return None
        finally:
            now = time.perf_counter()
            ROLLOUT_WAIT_S.inc(now - reported)
            self.waited_s += now - began

    def _run(self) -> None:
        try:
            # What an earlier life of this trainer read and never acknowledged comes first.
            self._hand_out(self._streams.read_held(STREAM, group=GROUP, consumer=CONSUMER, count=100_000))
            kept = time.monotonic()
            while not self._stopping.is_set():
                self._hand_out(
                    self._streams.read(
                        STREAM, group=GROUP, consumer=CONSUMER, count=self._batch_groups, block_s=BLOCK_S
                    )
                )
                if time.monotonic() - kept >= KEEP_EVERY_S:
                    self._hand_out(self._astray())
                    kept = time.monotonic()
        except BaseException as error:
            if isinstance(error, Unavailable) and self._stopping.is_set():
                return
            self._fault = error
            raise

    def _astray(self) -> list[Entry]:
        """Entries that are pending although this trainer does not know them."""
        self._streams.keep(STREAM, list(self._holding), group=GROUP, consumer=CONSUMER)
        entries = self._streams.claim_idle(STREAM, group=GROUP, consumer=CONSUMER, idle_s=IDLE_S)
        return [entry for entry in entries if entry.id not in self._holding]

    def _hand_out(self, entries: list[Entry]) -> None:
        for entry in entries:
            try:
                held = Held(entry.id, _trainable(decode_group(entry.data)))
                self._check(held.group)
            except (WireError, SetupError, ArithmeticError) as error:
                self._bury(entry.id, str(error))
                continue
            self._holding.add(entry.id)
            self._put(held)

    def _put(self, held: Held) -> None:
        while not self._stopping.is_set():
            try:
                self._ready.put(held, timeout=0.2)
            except queue.Full:
                continue
            return


def ledger_entry(group: TraceGroup) -> str:
    """What a commit's ledger keeps of a group: its id, and a digest of its answers."""
    answers = repr([trace.completion.token_ids for trace in group.traces])
    return f"{group.id}:{blake2b(answers.encode(), digest_size=8).hexdigest()}"


def _trainable(group: TraceGroup) -> TraceGroup:
    """The group, if its log-probabilities are of the whole distribution and its rewards of one version.

    Raises:
        WireError: the distribution was cut, or a point; its rewards cannot be compared.
    """
    drawn = group.sampling
    if not drawn.temperature > 0.0 or drawn.top_p != 1.0 or drawn.top_k > 0:
        raise WireError(
            f"group {group.id!r}: drawn at temperature {drawn.temperature!r} with top_p {drawn.top_p!r} and "
            f"top_k {drawn.top_k!r}; importance ratios need all tokens at a temperature above 0"
        )
    if len(group.reward_versions) > 1:
        raise WireError(f"group {group.id!r} has reward versions {', '.join(group.reward_versions)}")
    return group
