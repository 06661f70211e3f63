"""Groups from the `traces` stream, in order, each exactly once into a batch.

A thread of its own reads and decodes ahead, so that a step never waits for the network when
groups are there. What it hands out stays pending in Redis until `settle`.
"""

import logging
import queue
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from rookery.errors import Unavailable, WireError
from rookery.metrics import ROLLOUT_WAIT_S, TRAINER_GROUPS
from rookery.streams import Entry, RunStreams, decode_held_group
from rookery.trace import TraceGroup

logger = logging.getLogger(__name__)

STREAM = "traces"
GROUP = "trainer"
CONSUMER = "trainer"

_BLOCK_S = 0.5


@dataclass(frozen=True, slots=True)
class Held:
    """A group and the stream entry that must be settled for it."""

    entry_id: str
    group: TraceGroup


class Intake:
    """Reads ahead by at most two batches. Use as a context manager."""

    def __init__(
        self,
        streams: RunStreams,
        *,
        batch_groups: int,
        max_staleness: int,
        ledger: Collection[str],
        epoch: int,
        stopping: threading.Event,
    ) -> None:
        self._streams = streams
        self._batch_groups = batch_groups
        self._max_staleness = max_staleness
        self._ledger = set(ledger)
        self._epoch = epoch
        self._stopping = stopping
        self._ready: queue.Queue[Held] = queue.Queue(maxsize=2 * batch_groups)
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self.waited_s = 0.0
        self.dropped_stale = 0

    def __enter__(self) -> "Intake":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(timeout=5 * _BLOCK_S)

    def next_batch(self, *, version: int) -> list[Held] | None:
        """The next groups fresh enough for a trainer at `version`; None once stopping."""
        batch: list[Held] = []
        stale: list[str] = []
        started = time.perf_counter()
        while len(batch) < self._batch_groups:
            held = self._take()
            if held is None:
                return None
            if version - held.group.policy.number > self._max_staleness:
                stale.append(held.entry_id)
            else:
                batch.append(held)
        self.waited_s = time.perf_counter() - started
        ROLLOUT_WAIT_S.inc(self.waited_s)
        self._drop_stale(stale, version=version)
        return batch

    def settle(self, batch: list[Held]) -> None:
        """Acknowledges a committed batch."""
        ids = [held.entry_id for held in batch]
        self._streams.settle(ids, group=GROUP, result="trained", epoch=self._epoch)
        self._ledger.update(held.group.id for held in batch)
        TRAINER_GROUPS.labels(result="trained").inc(len(ids))

    def _drop_stale(self, entry_ids: list[str], *, version: int) -> None:
        self.dropped_stale = len(entry_ids)
        if entry_ids:
            logger.warning(
                "dropped %d groups over %d versions old at %d", len(entry_ids), self._max_staleness, version
            )
            self._streams.settle(entry_ids, group=GROUP, result="dropped:stale", epoch=self._epoch)
            TRAINER_GROUPS.labels(result="stale").inc(len(entry_ids))

    def _take(self) -> Held | None:
        while not self._stopping.is_set():
            if self._fault is not None:
                raise self._fault
            try:
                return self._ready.get(timeout=0.2)
            except queue.Empty:
                continue
        return None

    def _run(self) -> None:
        try:
            # What an earlier life of this trainer read and never acknowledged comes first.
            self._hand_out(self._streams.read_held(STREAM, group=GROUP, consumer=CONSUMER))
            while not self._stopping.is_set():
                self._hand_out(
                    self._streams.read(
                        STREAM, group=GROUP, consumer=CONSUMER, count=self._batch_groups, block_s=_BLOCK_S
                    )
                )
        except Unavailable:
            if not self._stopping.is_set():
                raise
        except BaseException as error:
            self._fault = error
            raise

    def _hand_out(self, entries: list[Entry]) -> None:
        for entry in entries:
            held = self._open(entry)
            while held is not None and not self._stopping.is_set():
                try:
                    self._ready.put(held, timeout=0.2)
                    break
                except queue.Full:
                    continue

    def _open(self, entry: Entry) -> Held | None:
        try:
            group = decode_held_group(entry)
        except WireError as error:
            self._streams.dead_letter(STREAM, entry.id, group=GROUP, reason=str(error))
            TRAINER_GROUPS.labels(result="dead").inc()
            return None
        if group.id in self._ledger:
            # Committed before the crash, never acknowledged: its effect is already in the weights.
            self._streams.settle([entry.id], group=GROUP, result="trained", epoch=self._epoch)
            TRAINER_GROUPS.labels(result="redelivered").inc()
            return None
        return Held(entry.id, group)
