import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference.rollouts.admission import WINDOW, Admission, Lead, Playing, RunCounts

small = st.integers(0, 200)

BATCH = 8
STEP = 20
"""Ticks of a training step."""


def filling(staleness: int, *, batch_groups: int = 4, max_inflight: int = 1000) -> Admission:
    return Admission(Lead(batch_groups, staleness, just_in_time=False), max_inflight)


def simulate(admission: Admission, *, version: int, accepted: int) -> int:
    """Groups that get started before anything is trained."""
    counts, started = RunCounts(accepted, 0, 0), 0
    while room := admission.to_read(counts, version=version, held=started):
        started += room
        counts = RunCounts(accepted, 0, started)
    return started


@pytest.mark.parametrize(("staleness", "version", "bound"), [(0, 0, 4), (2, 0, 12), (2, 3, 24)])
def test_the_run_stays_within_the_bound(staleness: int, version: int, bound: int) -> None:
    admission = filling(staleness)
    assert simulate(admission, version=version, accepted=version * 4) == bound - version * 4


def test_a_position_held_by_another_replica_counts() -> None:
    admission = filling(0, max_inflight=8)
    assert admission.to_read(RunCounts(0, 0, pending=3), version=0, held=0) == 1


def test_held_positions_may_start_although_they_are_pending() -> None:
    """After a crash everything admitted may be pending here: it must not block itself."""
    admission = filling(0, max_inflight=8)
    counts = RunCounts(accepted=0, untrained=0, pending=4)
    assert admission.to_read(counts, version=0, held=4) == 0
    assert admission.to_start(counts, version=0, running=0) == 4


def test_short_answers_do_not_wait_for_a_batch_of_long_games() -> None:
    admission = filling(0, max_inflight=8)
    counts = RunCounts(accepted=0, untrained=0, pending=4)
    assert admission.to_start(counts, version=0, running=4, playing=Playing(4, 4.0)) == 4
    assert admission.to_read(counts, version=0, held=4, playing=Playing(4, 4.0)) == 4
    more = RunCounts(accepted=0, untrained=0, pending=8)
    assert admission.to_read(more, version=0, held=8, playing=Playing(8, 1.5)) == 0, "a batch, no more"


@given(st.integers(0, 20), st.integers(0, 20), st.floats(0, 40))
def test_of_what_is_in_flight_games_take_what_they_occupy(first: int, groups: int, load: float) -> None:
    """A group with one episode left leaves room for others; one whose conversation has grown takes more."""
    admission, playing = filling(99, max_inflight=16), Playing(groups, load)
    room = admission.to_start(RunCounts(0, 0, 0), version=9, running=first + groups, playing=playing)
    assert room == max(0, 16 - first - math.ceil(load))
    assert admission.is_full(first + groups, playing) == (room == 0)


def test_lost_counts_admit_no_burst() -> None:
    admission = filling(1)
    assert admission.to_read(RunCounts(accepted=0, untrained=3, pending=0), version=100, held=0) == 2 * 4 - 3


@given(accepted=small, untrained=small, pending=small, version=small, held=small)
def test_never_negative_and_never_above_the_inflight_limit(
    accepted: int, untrained: int, pending: int, version: int, held: int
) -> None:
    admission = filling(2, batch_groups=8, max_inflight=16)
    room = admission.to_read(RunCounts(accepted, untrained, pending), version=version, held=held)
    assert 0 <= room <= max(0, 16 - held)


@dataclass
class Run:
    """A trainer and rollouts that obey `lead`, tick by tick: `ages` and `waits` of each step."""

    lead: Lead
    ages: list[float]
    waits: list[int]

    @classmethod
    def simulate(
        cls, latency: Callable[[int], int], *, steps: int, staleness: int = 2, just_in_time: bool = True
    ) -> "Run":
        """Group i is made in `latency(i)` ticks, however many others are in work."""
        run = cls(Lead(BATCH, staleness, just_in_time=just_in_time), [], [])
        ready: deque[int] = deque()
        working: list[tuple[int, int]] = []
        started = version = tick = waited = 0
        step_ends: int | None = None
        run.lead.observe(version=0, waiting=0, dropped=0)
        while version < steps:
            if tick == step_ends:
                version, step_ends = version + 1, None
                run.lead.observe(version=version, waiting=len(ready), dropped=0)
            while started < (version + 1) * BATCH + run.lead.groups:
                working.append((tick + latency(started), version))
                started += 1
            ready.extend(sampled for done, sampled in working if done <= tick)
            working = [group for group in working if group[0] > tick]
            if step_ends is None and len(ready) >= BATCH:
                batch = [ready.popleft() for _ in range(BATCH)]
                run.ages.append(sum(version - sampled for sampled in batch) / BATCH)
                run.waits.append(waited)
                step_ends, waited = tick + STEP, 0
            elif step_ends is None:
                waited += 1
            tick += 1
        return run

    def age(self, last: int) -> float:
        return sum(self.ages[-last:]) / last

    def idle_share(self, last: int) -> float:
        waited = sum(self.waits[-last:])
        return waited / (waited + last * STEP)


def test_groups_are_one_version_old_if_they_are_made_within_a_step() -> None:
    early = Run.simulate(lambda _: STEP // 2, steps=40, just_in_time=False)
    timely = Run.simulate(lambda _: STEP // 2, steps=40)
    assert early.age(30) == 2.0
    assert timely.age(30) == 1.0
    assert timely.idle_share(30) == early.idle_share(30) == 0.0


def test_groups_that_take_steps_are_started_so_many_steps_ahead() -> None:
    run = Run.simulate(lambda _: 2 * STEP + STEP // 2, steps=100, staleness=6)
    assert run.idle_share(60) < 0.01
    assert 2.5 <= run.age(60) <= 3.5


def test_stragglers_keep_the_trainer_waiting_only_until_the_lead_covers_them() -> None:
    def latency(number: int) -> int:
        return 3 * STEP if number % 10 == 0 else STEP // 2

    early = Run.simulate(latency, steps=200, just_in_time=False)
    timely = Run.simulate(latency, steps=200)
    assert timely.idle_share(160) < 0.01
    assert timely.age(160) < early.age(160) - 0.5


def test_rollouts_that_are_slower_than_the_trainer_start_all_that_may_start() -> None:
    early = Run.simulate(lambda _: 10 * STEP, steps=30, just_in_time=False)
    timely = Run.simulate(lambda _: 10 * STEP, steps=30)
    assert timely.waits == early.waits
    assert timely.lead.groups == 2 * BATCH


def test_an_outage_is_forgotten() -> None:
    def latency(number: int) -> int:
        return 5 * STEP if 80 <= number < 100 else STEP // 2

    run = Run.simulate(latency, steps=14 + 2 * WINDOW)
    assert max(run.ages) > 1.0
    assert run.ages[-1] == 1.0
    assert run.waits[-1] == 0


def test_a_trainer_that_drops_groups_gets_as_many_more() -> None:
    lead = Lead(BATCH, staleness=3, just_in_time=True)
    for version in range(20):
        lead.observe(version=version, waiting=lead.groups, dropped=5 * version)
    assert lead.groups == BATCH + 5
    for version in range(20, 20 + 2 * WINDOW):
        lead.observe(version=version, waiting=lead.groups, dropped=100 + 3 * (version - 20))
    assert lead.groups == BATCH + 3


def test_a_late_batch_adds_a_batch_for_a_window() -> None:
    lead = Lead(BATCH, staleness=3, just_in_time=True)
    for version in range(10):
        lead.observe(version=version, waiting=lead.groups, dropped=0)
    assert lead.groups == BATCH
    lead.observe(version=10, waiting=BATCH - 1, dropped=0)
    for version in range(11, 10 + WINDOW):
        lead.observe(version=version, waiting=lead.groups, dropped=0)
        assert lead.groups == 2 * BATCH
    lead.observe(version=10 + WINDOW, waiting=lead.groups, dropped=0)
    assert lead.groups == BATCH


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_the_lead_stays_within_its_bounds(staleness: int) -> None:
    lead = Lead(BATCH, staleness, just_in_time=True)
    for version in range(10):
        lead.observe(version=version, waiting=0, dropped=0)
    assert lead.groups == staleness * BATCH
    for version in range(10, 100):
        lead.observe(version=version, waiting=5 * BATCH, dropped=0)
    assert lead.groups == min(staleness, 1) * BATCH
