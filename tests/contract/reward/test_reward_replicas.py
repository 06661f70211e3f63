"""Replicas: the same bits from each, searches shared through Redis, one of them killed at work."""

import asyncio
import contextlib
import re
import signal
from collections.abc import Callable, Iterator

import httpx
import pytest
import redis

from rookery.clients import RewardClient, ScoreItem
from rookery.trace import Outcome, Verdict
from tests.conftest import RedisServer
from tests.contract.running_service import RunningService
from tests.waiting import eventually

pytestmark = [pytest.mark.stockfish, pytest.mark.redis]

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
MOVES = ["Qxf7#", "a3", "Nh3", "d4", "Qxc6", "Ke2", "Bd5", "nothing", "Ke5"]
ITEMS = [ScoreItem(FEN, rf"\boxed{{{move}}}") for move in MOVES]

Start = Callable[..., RunningService]


async def verdicts(service: RunningService, items: list[ScoreItem] = ITEMS) -> list[Verdict]:
    async with RewardClient(service.grpc_target) as client:
        return await client.score(items)


def metric(service: RunningService, name: str) -> float:
    text = httpx.get(f"{service.url}/metrics").text
    return sum(float(value) for value in re.findall(rf"^{name} (\S+)", text, re.MULTILINE))


def searched(service: RunningService) -> float:
    return metric(service, "rookery_reward_engine_nodes_total")


def ready(service: RunningService) -> bool:
    return httpx.get(f"{service.url}/readyz").is_success


@pytest.fixture
def memory(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
        yield client


async def test_what_one_replica_searched_no_other_searches(
    start_service: Start, redis_server: RedisServer, memory: redis.Redis
) -> None:
    first, second = (start_service("--redis-url", redis_server.url) for _ in range(2))
    judged = await verdicts(first)
    asked = metric(first, "rookery_shared_cache_reads_total.*")
    await eventually(lambda: memory.dbsize() == asked)
    spoilt, *_ = memory.scan_iter()
    memory.set(spoilt, b"\xffnonsense")
    assert await verdicts(second) == judged
    assert 0 < searched(second) <= searched(first) / 4  # the spoilt one alone
    await eventually(lambda: memory.get(spoilt) != b"\xffnonsense")


async def test_a_replica_does_without_its_redis(start_service: Start, redis_server: RedisServer) -> None:
    service = start_service("--redis-url", redis_server.url)
    judged = await verdicts(service)
    redis_server.stop()
    others = [ScoreItem(item.fen.replace(" - 4 4", " - 9 9"), item.response) for item in ITEMS]
    assert [verdict.outcome for verdict in await verdicts(service, others)] == [v.outcome for v in judged]
    assert await verdicts(service) == judged
    assert metric(service, "rookery_shared_cache_up") == 0
    assert ready(service)
    redis_server.start()
    await eventually(lambda: metric(service, "rookery_shared_cache_up") == 1)
    _, log = service.stop()
    assert log.count("the shared cache is unavailable") == 1
    assert "Traceback" not in log


async def test_a_replica_killed_at_work_loses_nothing(start_service: Start) -> None:
    doomed, other = (start_service("--nodes", "4000") for _ in range(2))
    fens = [FEN.replace(" 4 4", f" {clock} {clock + 4}") for clock in range(50)]
    groups = [(fen, [ScoreItem(fen, rf"\boxed{{{move}}}") for move in MOVES[:3]]) for fen in fens]
    answers: dict[str, list] = {}
    async with RewardClient(f"ipv4:{doomed.grpc_target},{other.grpc_target}") as client:
        await until_connected(client, doomed, other)
        async for fen, slots in client.stream(groups, items=30):
            assert fen not in answers
            answers[fen] = slots
            if len(answers) == 5:
                doomed.process.send_signal(signal.SIGKILL)
    assert answers.keys() == set(fens)
    assert {slot.outcome for slots in answers.values() for slot in slots} == {Outcome.LEGAL}
    assert answers[fens[-1]] == await verdicts(other, groups[-1][1])


async def until_connected(client: RewardClient, *services: RunningService) -> None:
    """gRPC connects to its addresses one after the other, and uses those it has."""
    async with asyncio.timeout(20.0):
        while not all(metric(service, r"rookery_reward_requests_total.*") for service in services):
            await client.score([ScoreItem(FEN, "nothing")])
