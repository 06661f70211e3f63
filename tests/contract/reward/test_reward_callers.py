"""Callers who hang up: their searches end with them, queued or running, over HTTP and gRPC alike."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import grpc
import httpx
import pytest

from rookery import serving
from rookery.serving import Service
from rookery.v1 import reward_pb2, reward_pb2_grpc
from services.reward.app import create_app
from tests.conftest import free_port
from tests.contract.reward.gated import GatedScorer
from tests.contract.running_service import RunningService
from tests.unit.rookery.running import running
from tests.waiting import eventually

pytestmark = pytest.mark.stockfish

FENS = [
    "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4",
    "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4",
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
]
ITEMS = [{"fen": fen, "response": r"\boxed{a3}"} for fen in FENS]
LOOKUP_TIMEOUT_S = 20.0
"""The searches would take minutes."""


@pytest.fixture(scope="module")
def slow_service(start_service: Callable[..., RunningService]) -> Iterator[RunningService]:
    service = start_service("--nodes", "100000000", "--deadline-s", "600")
    yield service
    status, log = service.stop()
    assert status == 0
    assert "Traceback" not in log


@dataclass(frozen=True)
class Load:
    """What a service is doing, by its own metrics."""

    busy: int
    waiting: int
    given_up: int


async def load(service: RunningService) -> Load:
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{service.url}/metrics")).text
    sums = [
        sum(float(value) for value in re.findall(rf"^{name} (\S+)", text, re.MULTILINE))
        for name in (
            "rookery_reward_engines_busy",
            "rookery_reward_queue_depth",
            r'rookery_reward_requests_total\{result="cancelled".*\}',
        )
    ]
    return Load(*map(int, sums))


async def until(service: RunningService, condition: Callable[[Load], bool]) -> None:
    """Returns when `condition` holds, long before a search would have ended."""

    async def holds() -> bool:
        return condition(await load(service))

    await eventually(holds, within_s=LOOKUP_TIMEOUT_S)


@asynccontextmanager
async def given_up(service: RunningService) -> AsyncIterator[None]:
    """The block asks, and hangs up once the engine works on it: then nothing of it may be left."""
    before = await load(service)
    assert (before.busy, before.waiting) == (0, 0)
    yield
    await until(service, lambda now: now == replace(before, given_up=before.given_up + 1))


@pytest.mark.parametrize(("path", "body"), [("/v1/score", ITEMS[0]), ("/v1/score/batch", {"items": ITEMS})])
async def test_a_closed_socket_ends_the_search(slow_service: RunningService, path: str, body: object) -> None:
    async with given_up(slow_service):
        url = httpx.URL(slow_service.url)
        _, writer = await asyncio.open_connection(url.host, url.port)
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
        await until(slow_service, lambda now: now.busy == 1)
        writer.close()


@pytest.mark.parametrize("method", ["Score", "ScoreBatch"])
async def test_a_cancelled_call_ends_the_search(slow_service: RunningService, method: str) -> None:
    items = [reward_pb2.ScoreRequest(**item) for item in ITEMS]
    async with given_up(slow_service), grpc.aio.insecure_channel(slow_service.grpc_target) as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        ask = {
            "Score": lambda: stub.Score(items[0]),
            "ScoreBatch": lambda: stub.ScoreBatch(reward_pb2.ScoreBatchRequest(items=items)),
        }
        call = ask[method]()
        await until(slow_service, lambda now: now.busy == 1)
        call.cancel()


async def test_a_caller_whom_a_stopping_service_cannot_wait_for_is_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "DRAIN_S", 1)
    gated = GatedScorer()
    service = Service("reward", create_app(gated), "127.0.0.1", free_port(), "PORT")
    async with running(service) as http:
        asked = asyncio.create_task(http.post("/v1/score/batch", json={"items": ITEMS}))
        await eventually(lambda: gated.judging)
        service.stopping.set()
        answer = await asked
    assert (answer.status_code, answer.json()["detail"]) == (503, "the service is stopping")
    assert answer.headers["retry-after"] == "1"
    assert gated.cancelled == len(ITEMS)
