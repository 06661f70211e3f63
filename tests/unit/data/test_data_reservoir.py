from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chess_datasets.positions.sampling import Reservoir

RANKS = st.lists(st.integers(0, 40) | st.integers(0, (1 << 64) - 1), max_size=60)


@given(ranks=RANKS, size=st.integers(0, 12))
def test_the_smallest_ranks_are_kept_each_once_with_its_first_text(ranks: list[int], size: int) -> None:
    reservoir = Reservoir(size)
    for number, rank in enumerate(ranks):
        if reservoir.wants(rank):
            reservoir.add(rank, str(number).encode())
    kept = reservoir.finish().tolist()
    assert kept == sorted(set(ranks))[:size]
    assert [int(reservoir.text(index)) for index in range(len(kept))] == [ranks.index(rank) for rank in kept]
    reservoir.close()


@pytest.fixture
def full() -> Iterator[Reservoir]:
    reservoir = Reservoir(2)
    for rank in (5, 6, 7, 8):
        reservoir.add(rank, b"")
    yield reservoir
    reservoir.close()


def test_what_is_too_large_is_not_wanted(full: Reservoir) -> None:
    assert full.wants(6)
    assert not full.wants(7)
    full.add(1 << 63, b"")
    assert full.finish().tolist() == [5, 6]
