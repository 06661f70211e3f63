"""The main loop: admits positions, makes their groups in `generator`, and settles each exactly once.

Unpublished positions stay pending in Redis, so this process can be killed at any point without losing any.
Blocking reads run in their own thread, so they never delay a publication.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from prometheus_client import Counter

from rookery import waits
from rookery.errors import Conflict, PeerFault, RookeryError, SetupError, Unavailable
from rookery.failpoints import reach
from rookery.metrics import (
    BACKPRESSURE_S,
    PEERS_WAIT_S,
    POSITIONS_WAIT_S,
    ROLLOUT_GROUPS,
    ROLLOUT_INFLIGHT,
    ROLLOUT_LEAD,
)
from rookery.retries import pause
from rookery.streams import Entry, RunStreams
from rookery.trace import TraceGroup
from services.inference.rollouts.admission import Admission, InFlight, RunCounts
from services.inference.rollouts.group_generator import GroupGenerator

logger = logging.getLogger(__name__)

T = TypeVar("T")

BLOCK_S = 1.0
"""How long a read waits for positions. Stopping may wait this long, for the read in progress."""
MAX_PAUSE_S = 0.2
"""Longest pause of the loop. It must poll, because no event tells that the trainer dropped groups."""
DRAIN_S = 10.0
KEEP_ALIVE_S = 10.0
IDLE_S = 60.0
"""An entry without a keep-alive for this long (six missed ones) is taken over from its holder."""
READY_S = 300.0
"""If a peer is not ready for longer, the wait for it is reported (see `rookery.waits`)."""
MAX_FAULTS = 5
"""A position is dead-lettered after this many faults, counted over all processes and their restarts."""
MAX_FAILURES_IN_A_ROW = 8
"""More dead letters, or groups of another reward version, in a row mean that the set-up is wrong."""


class Loop:
    """One consumer of the `positions` stream."""

    def __init__(
        self,
        run: RunStreams,
        generator: GroupGenerator,
        admission: Admission,
        *,
        consumer: str,
        accept_reward_version: str = "",
        changed: asyncio.Event,
    ) -> None:
        self._run, self._generator, self._peers = run, generator, generator.peers
        self._admission, self._consumer, self._changed = admission, consumer, changed
        self._in_flight = InFlight()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="positions")
        self._accept_reward_version = accept_reward_version
        self._dead_letters_in_a_row = self._conflicts_in_a_row = 0
        self._failure: BaseException | None = None
        self._wait: waits.Wait | None = None
        """What keeps this loop from starting groups."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Makes groups until `stopping` is set, then finishes or abandons those in flight.

        Raises:
            RookeryError: more than `MAX_FAILURES_IN_A_ROW` dead letters; the message quotes the last reason.
            SetupError: the reward version is no longer the run's.
        """
        try:
            await self._resume()
            while not stopping.is_set() and not self._failure:
                await self._iterate()
        except Unavailable:
            if not stopping.is_set():
                raise
        finally:
            self._end_wait()
            await self._drain()
            self._reader.shutdown(wait=False)
        if self._failure:
            raise self._failure

    async def keep(self, stopping: asyncio.Event) -> None:
        """Keeps the held entries alive, and takes over idle ones. An idle entry belongs to a dead consumer,
        or Redis gave it to this process in a reply that was lost."""
        while not await pause(stopping, KEEP_ALIVE_S):
            try:
                self._in_flight.add(await asyncio.to_thread(self._keep, self._in_flight.ids))
            except Unavailable:
                if not stopping.is_set():
                    raise

    def _keep(self, held: list[str]) -> list[Entry]:
        self._run.positions.keep(held, consumer=self._consumer)
        return self._run.positions.claim_idle(consumer=self._consumer, idle_s=IDLE_S)

    async def _iterate(self) -> None:
        """Starts the groups that may start, then waits. Idle time is counted by its cause."""
        version = self._peers.version
        if version is None or self._peers.unavailable_reason():
            peer = "inference" if version is None else "reward"
            return await self._pause(PEERS_WAIT_S, self._begin_wait("readiness", peer))
        if self._admission.is_full(self._in_flight.running, self._generator.playing):
            return await self._pause(None)
        counts = await asyncio.to_thread(self._run_counts)
        running, playing = self._in_flight.running, self._generator.playing
        room = self._admission.to_start(counts, version=version, running=running, playing=playing)
        self._start(self._in_flight.start(now=time.monotonic(), limit=room))
        held = len(self._in_flight)
        to_read = self._admission.to_read(counts, version=version, held=held, playing=playing)
        if to_read:
            return await self._read_new(to_read)
        full = self._admission.is_full(self._in_flight.running, playing)
        if full or counts.ended:
            return await self._pause(None)
        return await self._pause(BACKPRESSURE_S, self._begin_wait("a new version", "the trainer"))

    def _run_counts(self) -> RunCounts:
        # Read `pending` first: a group published in between is then counted twice rather than not at all.
        pending = self._run.positions.pending()
        state = self._run.overview()
        self._admission.lead.observe(
            version=state.committed, waiting=state.waiting, dropped=sum(state.counts.dropped.values())
        )
        ROLLOUT_LEAD.set(self._admission.lead.groups)
        return RunCounts(state.counts.accepted, untrained=state.traces, pending=pending, ended=state.ended)

    async def _resume(self) -> None:
        held = await self._read(lambda: self._run.positions.read_held(consumer=self._consumer))
        if held:
            logger.info("resumes %d positions of an earlier process", len(held))
        self._in_flight.add(held)

    async def _read_new(self, count: int) -> None:
        began = time.monotonic()
        self._begin_wait("positions", "the feed")
        entries = await self._read(
            lambda: self._run.positions.read_new(
                consumer=self._consumer, count=count, block_s=BLOCK_S, known=lambda: self._in_flight.ids
            )
        )
        POSITIONS_WAIT_S.inc(time.monotonic() - began)
        if entries:
            self._end_wait()
        self._in_flight.add(entries)
        self._start(self._in_flight.start(now=time.monotonic(), limit=len(entries)))

    async def _read(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, call)

    async def _pause(self, cause: Counter | None, wait: waits.Wait | None = None) -> None:
        """Waits a moment, for `cause`. The loop comes here again and again during one `wait`."""
        began = time.monotonic()
        if wait is None:
            self._end_wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), MAX_PAUSE_S)
        self._changed.clear()
        if cause:
            cause.inc(time.monotonic() - began)

    def _begin_wait(self, what: str, peer: str) -> waits.Wait:
        if self._wait is None or (self._wait.what, self._wait.peer) != (what, peer):
            self._end_wait()
            self._wait = waits.begin(what, peer, expected_s=READY_S if what == "readiness" else waits.STEP_S)
        return self._wait

    def _end_wait(self) -> None:
        if self._wait:
            waits.end(self._wait)
            self._wait = None

    def _start(self, entries: list[Entry]) -> None:
        for entry in entries:
            task = asyncio.create_task(self._work(entry), name=f"group-{entry.id}")
            self._tasks.add(task)
            task.add_done_callback(self._done)
        ROLLOUT_INFLIGHT.set(self._in_flight.running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error and not isinstance(error, Unavailable):  # stopped while Redis was down: it stays pending
            self._failure = error
        ROLLOUT_INFLIGHT.set(self._in_flight.running)
        self._changed.set()

    async def _work(self, entry: Entry) -> None:
        try:
            group = await self._generator.generate(entry, self._run.positions)
        except Unavailable as error:
            await self._postpone(entry, error)
        except SetupError:  # a wrong token, for example: the process ends, and the position stays pending
            raise
        except RookeryError as error:  # a retry would fail the same way
            await self._dead_letter(entry, str(error))
        else:
            await self._publish(entry, group)

    async def _publish(self, entry: Entry, group: TraceGroup) -> None:
        reach("rollouts.generated")
        try:
            published = await asyncio.to_thread(
                self._run.groups.publish,
                group,
                entry_id=entry.id,
                accept=self._accept_reward_version,
            )
        except Conflict as error:  # another reward replica may have the run's version
            self._conflicts_in_a_row += 1
            if self._conflicts_in_a_row > MAX_FAILURES_IN_A_ROW:
                accepted = shlex.quote(group.reward_versions[0])
                raise SetupError(
                    f"{error}: restore the reward service, or, to change the run's version, start the "
                    f"rollouts with --accept-reward-version {accepted} (`rookery up` with "
                    f"--set rollouts.accept_reward_version={accepted})"
                ) from error
            return await self._postpone(entry, error)
        reach("rollouts.published")
        self._dead_letters_in_a_row = self._conflicts_in_a_row = 0
        self._in_flight.remove(entry.id)
        ROLLOUT_GROUPS.labels("published" if published else "superseded").inc()
        return None

    async def _postpone(self, entry: Entry, error: RookeryError) -> None:
        # A fault may be due to the position only if the peer is up, so only those count.
        if isinstance(error, PeerFault):
            faults = await asyncio.to_thread(self._run.positions.count_fault, entry.id)
            if faults >= MAX_FAULTS:
                return await self._dead_letter(entry, f"out of attempts, the last: {error}")
        wait_s = self._in_flight.postpone(entry.id, now=time.monotonic())
        ROLLOUT_GROUPS.labels("postponed").inc()
        logger.warning("entry %s waits %.0f s: %s", entry.id, wait_s, error)
        return None

    async def _dead_letter(self, entry: Entry, reason: str) -> None:
        self._dead_letters_in_a_row += 1
        if self._dead_letters_in_a_row > MAX_FAILURES_IN_A_ROW:
            raise RookeryError(f"{MAX_FAILURES_IN_A_ROW} dead letters in a row; the next reason: {reason}")
        await asyncio.to_thread(self._run.positions.dead_letter, entry.id, reason=reason)
        self._in_flight.remove(entry.id)
        ROLLOUT_GROUPS.labels("dead").inc()

    async def _drain(self) -> None:
        if not self._tasks:
            return
        logger.info("finishing %d groups in flight", len(self._tasks))
        _, abandoned = await asyncio.wait(self._tasks, timeout=DRAIN_S)
        for task in abandoned:
            task.cancel()
        if abandoned:
            await asyncio.wait(abandoned)
            logger.warning("abandoned %d groups: their positions stay pending", len(abandoned))
