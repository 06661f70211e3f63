import pytest

from services.data.concurrency import Workers


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order(jobs: int) -> None:
    with Workers(jobs) as workers:
        assert list(workers.map(abs, range(-30, 0))) == list(range(30, 0, -1))


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_a_piece_is_the_callers(jobs: int) -> None:
    with Workers(jobs) as workers, pytest.raises(ValueError, match="invalid literal"):
        list(workers.map(int, ["1", "x"]))
