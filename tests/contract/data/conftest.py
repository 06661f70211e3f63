from collections.abc import Callable, Iterator

import pytest

from tests.contract.running_service import RunningService, services


@pytest.fixture(scope="session")
def start_data() -> Iterator[Callable[..., RunningService]]:
    """Starts `python -m MODULE FLAGS`."""
    with services() as start:
        yield start


@pytest.fixture(scope="session")
def data_service(start_data: Callable[..., RunningService]) -> RunningService:
    service = start_data("services.data")
    service.wait_ready()
    return service
