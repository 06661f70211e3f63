"""The gRPC contract: the order of HTTP, as a stream that ends when asked to."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import grpc
import httpx
import pytest

from rookery.codec import position_from_proto
from rookery.middleware import MAX_BODY_BYTES
from rookery.trace import Phase, Position
from rookery.v1 import data_pb2, data_pb2_grpc
from services.data.app import PositionBody
from tests.contract.running_service import RunningService

Request = data_pb2.SamplePositionsRequest


@pytest.fixture
async def stub(data_service: RunningService) -> AsyncIterator[data_pb2_grpc.DataServiceStub]:
    async with grpc.aio.insecure_channel(data_service.grpc_target) as channel:
        yield data_pb2_grpc.DataServiceStub(channel)


async def sample(stub: data_pb2_grpc.DataServiceStub, request: Request) -> list[Position]:
    return [position_from_proto(response.position) async for response in stub.SamplePositions(request)]


def over_http(service: RunningService, query: str) -> list[Position]:
    bodies = httpx.get(f"{service.url}/v1/positions?{query}", timeout=60).json()["positions"]
    parsed = [PositionBody.model_validate(body) for body in bodies]
    return [
        Position(**{**body.model_dump(), "phase": Phase(body.phase), "last_moves": tuple(body.last_moves)})
        for body in parsed
    ]


@pytest.mark.parametrize(
    ("request_", "query"),
    [
        (Request(count=40, seed=9), "count=40&seed=9"),
        (Request(count=3), "count=3"),
        (Request(count=3, seed=0), "count=3&seed=0"),
        (Request(count=16, seed=9, offset=5), "count=16&seed=9&offset=5"),
        (Request(count=17, offset=1, split=data_pb2.SPLIT_HELDOUT), "count=17&offset=1&split=heldout"),
        (Request(count=1, split=data_pb2.SPLIT_ALL), "count=1&split=all"),
    ],
)
async def test_it_is_the_order_of_http(
    stub: data_pb2_grpc.DataServiceStub, data_service: RunningService, request_: Request, query: str
) -> None:
    assert await sample(stub, request_) == await asyncio.to_thread(over_http, data_service, query)


async def test_a_stream_without_end_ends_when_cancelled(stub: data_pb2_grpc.DataServiceStub) -> None:
    call = stub.SamplePositions(Request(count=0, split=data_pb2.SPLIT_HELDOUT))
    seen = count()
    with pytest.raises(asyncio.CancelledError):
        async for _ in call:
            if next(seen) == 50:
                call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


async def test_an_unknown_split_is_refused(stub: data_pb2_grpc.DataServiceStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await sample(stub, Request(count=1, split=9))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "split 9" in (caught.value.details() or "")


async def test_prompts_are_those_of_http(
    stub: data_pb2_grpc.DataServiceStub, data_service: RunningService
) -> None:
    asked = {"fen": "4k3/8/8/8/8/8/4p3/R3K3 b Q - 1 40", "style": "mover-squares"}
    answer = await stub.RenderPrompt(data_pb2.RenderPromptRequest(**asked))
    over = await asyncio.to_thread(httpx.post, f"{data_service.url}/v1/render", json=asked)
    prompt = answer.prompt
    messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
    assert over.json() == {"style": prompt.style, "messages": messages, "fen": prompt.fen}
    default = await stub.RenderPrompt(data_pb2.RenderPromptRequest(fen=asked["fen"]))
    assert default.prompt.style == "fen"


async def test_games_are_those_of_http(
    stub: data_pb2_grpc.DataServiceStub, data_service: RunningService
) -> None:
    answer = await stub.GetGame(data_pb2.GetGameRequest(id="0c14ce2687fe554e"))
    over = await asyncio.to_thread(httpx.get, f"{data_service.url}/v1/games/0c14ce2687fe554e")
    game = answer.game
    assert {name: getattr(game, name) for name in over.json() if name != "moves"} == {
        name: value for name, value in over.json().items() if name != "moves"
    }
    assert list(game.moves) == over.json()["moves"]


async def test_what_is_huge_is_quoted_in_part_or_refused(stub: data_pb2_grpc.DataServiceStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.RenderPrompt(data_pb2.RenderPromptRequest(fen="x" * (1 << 20)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetGame(data_pb2.GetGameRequest(id="x" * (1 << 20)))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.RenderPrompt(data_pb2.RenderPromptRequest(fen="x" * MAX_BODY_BYTES))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_is_wrong_has_its_status(stub: data_pb2_grpc.DataServiceStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.RenderPrompt(data_pb2.RenderPromptRequest(fen="x"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetGame(data_pb2.GetGameRequest(id="x"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
