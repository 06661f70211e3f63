import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference.rollouts.admission import Admission, RunCounts

small = st.integers(0, 200)


def simulate(admission: Admission, *, version: int, accepted: int) -> int:
    """Groups that get started before anything is trained."""
    counts, started = RunCounts(accepted, 0, 0), 0
    while room := admission.to_read(counts, version=version, held=started):
        started += room
        counts = RunCounts(accepted, 0, started)
    return started


@pytest.mark.parametrize(("staleness", "version", "bound"), [(0, 0, 4), (2, 0, 12), (2, 3, 24)])
def test_the_run_stays_within_the_bound(staleness: int, version: int, bound: int) -> None:
    admission = Admission(batch_groups=4, staleness=staleness, max_inflight=1000)
    assert simulate(admission, version=version, accepted=version * 4) == bound - version * 4


def test_a_position_held_by_another_replica_counts() -> None:
    admission = Admission(batch_groups=4, staleness=0, max_inflight=8)
    assert admission.to_read(RunCounts(0, 0, pending=3), version=0, held=0) == 1


def test_held_positions_may_start_although_they_are_pending() -> None:
    """After a crash everything admitted may be pending here: it must not block itself."""
    admission = Admission(batch_groups=4, staleness=0, max_inflight=8)
    counts = RunCounts(accepted=0, untrained=0, pending=4)
    assert admission.to_read(counts, version=0, held=4) == 0
    assert admission.to_start(counts, version=0, running=0) == 4


def test_lost_counts_admit_no_burst() -> None:
    admission = Admission(batch_groups=4, staleness=1, max_inflight=1000)
    assert admission.to_read(RunCounts(accepted=0, untrained=3, pending=0), version=100, held=0) == 2 * 4 - 3


@given(accepted=small, untrained=small, pending=small, version=small, held=small)
def test_never_negative_and_never_above_the_inflight_limit(
    accepted: int, untrained: int, pending: int, version: int, held: int
) -> None:
    admission = Admission(batch_groups=8, staleness=2, max_inflight=16)
    room = admission.to_read(RunCounts(accepted, untrained, pending), version=version, held=held)
    assert 0 <= room <= max(0, 16 - held)
