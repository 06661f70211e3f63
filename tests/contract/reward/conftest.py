"""The reward service as its callers meet it: in this process, and as a process of its own."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from rookery.config.reward import RewardSettings
from services.reward.app import create_app
from services.reward.scorer import Scorer
from tests.contract.running_service import RunningService, services


@pytest.fixture
async def scorer(stockfish_path: str) -> AsyncIterator[Scorer]:
    settings = RewardSettings(engine_path=Path(stockfish_path), engines=1)
    async with await Scorer.start(settings) as scorer:
        yield scorer


@pytest.fixture
async def http(scorer: Scorer) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(scorer))
    async with httpx.AsyncClient(transport=transport, base_url="http://reward") as client:
        yield client


@pytest.fixture(scope="session")
def start_service(stockfish_path: str) -> Iterator[Callable[..., RunningService]]:
    """Starts the service with the given flags, and waits until it is ready."""
    with services() as start:

        def ready(*flags: str) -> RunningService:
            service = start("services.reward", "--engines", "1", *flags, REWARD_ENGINE_PATH=stockfish_path)
            service.wait_ready()
            return service

        yield ready


@pytest.fixture(scope="session")
def service(start_service: Callable[..., RunningService]) -> RunningService:
    return start_service()
