"""The gRPC contract: the same verdicts, errors as status codes, problems in their slots."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from rookery.clients import RewardClient, ScoreItem
from rookery.codec import verdict_from_proto
from rookery.errors import InvalidInput, PeerFault
from rookery.trace import Outcome
from rookery.v1 import reward_pb2, reward_pb2_grpc
from services.reward.requests import MAX_ITEMS
from services.reward.scorer import Scorer
from services.reward.servicer import SERVICE_NAME, RewardServicer
from tests.contract.running_service import RunningService
from tests.servers import serve_reward

pytestmark = pytest.mark.stockfish

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
ANSWERS = [r"\boxed{Qxf7#}", r"\boxed{a3}", r"\boxed{Ke5}", "nothing"]


@pytest.fixture
async def target(scorer: Scorer) -> AsyncIterator[str]:
    async with serve_reward(RewardServicer(scorer)) as target:
        yield target


@pytest.fixture
async def stub(target: str) -> AsyncIterator[reward_pb2_grpc.RewardServiceStub]:
    async with grpc.aio.insecure_channel(target) as channel:
        yield reward_pb2_grpc.RewardServiceStub(channel)


async def test_score_is_the_scorers_verdict(stub: reward_pb2_grpc.RewardServiceStub, scorer: Scorer) -> None:
    for answer in ANSWERS:
        response = await stub.Score(reward_pb2.ScoreRequest(fen=FEN, response=answer))
        assert verdict_from_proto(response.verdict) == await scorer.score(ScoreItem(FEN, answer))


async def test_the_sentences_of_a_verdict_come_over(
    stub: reward_pb2_grpc.RewardServiceStub, scorer: Scorer
) -> None:
    answer = r"<think>White's king is in check. Hm!</think> I play \boxed{a3}"
    request = reward_pb2.ScoreRequest(fen=FEN, response=answer, scheme="delta+truth")
    verdict = verdict_from_proto((await stub.Score(request)).verdict)
    assert verdict == await scorer.score(ScoreItem(FEN, answer, scheme="delta+truth"))
    assert [sentence.read for sentence in verdict.sentences][:2] == [True, False]
    assert [claim.true for claim in verdict.sentences[0].claims] == [False]


async def test_errors_are_status_codes(stub: reward_pb2_grpc.RewardServiceStub, scorer: Scorer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Score(reward_pb2.ScoreRequest(fen="nonsense"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'nonsense'" in (caught.value.details() or "")
    await scorer.close()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Score(reward_pb2.ScoreRequest(fen=FEN, response=ANSWERS[0]))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_bad_item_fills_its_own_slot(stub: reward_pb2_grpc.RewardServiceStub) -> None:
    fens = [FEN, "nonsense", FEN]
    items = [reward_pb2.ScoreRequest(fen=fen, response=r"\boxed{a3}") for fen in fens]
    response = await stub.ScoreBatch(reward_pb2.ScoreBatchRequest(items=items))
    assert [item.WhichOneof("result") for item in response.items] == ["verdict", "problem", "verdict"]
    assert response.items[1].problem.status == 422
    assert response.items[0] == response.items[2]


async def test_too_many_items_are_refused(stub: reward_pb2_grpc.RewardServiceStub) -> None:
    items = [reward_pb2.ScoreRequest()] * (MAX_ITEMS + 1)
    with pytest.raises(grpc.aio.AioRpcError, match="at most 1024"):
        await stub.ScoreBatch(reward_pb2.ScoreBatchRequest(items=items))


async def test_the_typed_client(target: str, scorer: Scorer) -> None:
    async with RewardClient(target) as client:
        verdicts = await client.score([ScoreItem(FEN, answer, truncated=True) for answer in ANSWERS])
        assert [v.outcome for v in verdicts] == [
            Outcome.LEGAL, Outcome.LEGAL, Outcome.ILLEGAL, Outcome.TRUNCATED,
        ]  # fmt: skip
        assert verdicts[1] == await scorer.score(ScoreItem(FEN, ANSWERS[1]))
        with pytest.raises(InvalidInput, match="nonsense"):
            await client.score([ScoreItem("nonsense", "")])
        await scorer.close()
        with pytest.raises(PeerFault):
            await client.score([ScoreItem(FEN, r"\boxed{h4}")])


async def test_health_is_served_by_name(service: RunningService) -> None:
    async with grpc.aio.insecure_channel(service.grpc_target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE_NAME):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_falls_with_the_engines_and_rises_again(
    start_service, stockfish_path: str, tmp_path: Path
) -> None:
    path = tmp_path / "engine"
    sound = f'#!/bin/sh\nexec "{stockfish_path}"\n'
    path.write_text(sound)
    path.chmod(0o755)
    service = start_service("--engine-path", str(path))
    (engine,) = (process.pid for process in psutil.Process(service.process.pid).children())
    async with grpc.aio.insecure_channel(service.grpc_target) as channel, asyncio.timeout(60):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE_NAME))
        statuses = aiter(watch)
        seen = [(await anext(statuses)).status]
        path.write_text("#!/bin/sh\nexit 1\n")
        os.kill(engine, signal.SIGKILL)
        seen.append((await anext(statuses)).status)
        path.write_text(sound)
        seen.append((await anext(statuses)).status)
        watch.cancel()
    serving, away = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert seen == [serving, away, serving]
    assert service.stop()[0] == 0


def test_reflection_describes_every_method(service: RunningService) -> None:
    with grpc.insecure_channel(service.grpc_target) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert SERVICE_NAME in database.get_services()
        file = database.FindFileContainingSymbol(SERVICE_NAME)
    (described,) = file.service
    methods = {m.name: (m.client_streaming, m.server_streaming) for m in described.method}
    assert methods == {"Score": (False, False), "ScoreBatch": (False, False)}
