"""The HTTP contract beyond what the page shows."""

import httpx
import pytest

from tests.contract.data.conftest import RunningService


def get(service: RunningService, query: str) -> httpx.Response:
    return httpx.get(f"{service.url}/v1/positions?{query}", timeout=60)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("count=-1", 'query.count: Input should be greater than or equal to 1 (got "-1")'),
        ("count=10001", "query.count: Input should be less than or equal to 10000"),
        (
            "count=many",
            'query.count: Input should be a valid integer, unable to parse string as an integer (got "many")',
        ),
        ("seed=-1", "query.seed: Input should be greater than or equal to 0"),
        (
            "seed=18446744073709551616",
            "query.seed: Input should be less than or equal to 18446744073709551615",
        ),
        ("split=test", "query.split: Input should be 'train', 'heldout' or 'all' (got \"test\")"),
        ("ofset=5", "query.ofset: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_parameter_is_quoted(data_service: RunningService, query: str, said: str) -> None:
    response = get(data_service, query)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert said in response.json()["detail"]


def test_pages_make_one_order(data_service: RunningService) -> None:
    whole = get(data_service, "count=30&seed=2").json()
    pages = [get(data_service, f"count=10&seed=2&offset={offset}").json() for offset in (0, 10, 20)]
    assert whole["positions"] == [position for page in pages for position in page["positions"]]
    assert [page["next_offset"] for page in pages] == [10, 20, 30]


def test_seeds_differ(data_service: RunningService) -> None:
    assert (
        get(data_service, "count=5&seed=1").json()["positions"]
        != get(data_service, "count=5").json()["positions"]
    )


def test_the_far_end_of_the_order(data_service: RunningService) -> None:
    last = (1 << 64) - 1
    assert len(get(data_service, f"count=3&seed={last}&offset={last}").json()["positions"]) == 3
