"""Reads the games and serves positions over HTTP and gRPC (`rookery.v1.DataService`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import grpc

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.sources import setting_sources
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from rookery.codec import position_to_proto, prompt_to_proto
from rookery.config.data import DataSettings
from rookery.errors import InvalidInput
from rookery.serving import Service, grpc_errors, serve
from rookery.trace import Position, Split
from rookery.v1 import data_pb2, data_pb2_grpc
from services.data.app import create_app, number_ranges
from services.data.rendering import render_fen

SERVICE_NAME = data_pb2.DESCRIPTOR.services_by_name["DataService"].full_name

_SPLITS: dict[int, Split] = {
    data_pb2.SPLIT_TRAIN: "train",
    data_pb2.SPLIT_HELDOUT: "heldout",
    data_pb2.SPLIT_ALL: "all",
}

Context = grpc.aio.ServicerContext[Any, Any]


class DataServicer(data_pb2_grpc.DataServiceServicer):
    """Implements the methods for one order and its games. Endless streams end when `stopping` is set."""

    def __init__(self, order: PositionOrder, *, seed: int, stopping: asyncio.Event) -> None:
        self._order = order
        self._seed = seed
        self._stopping = stopping

    async def SamplePositions(  # noqa: N802
        self, request: data_pb2.SamplePositionsRequest, context: Context
    ) -> AsyncIterator[data_pb2.SamplePositionsResponse]:
        async with grpc_errors(context):
            split = self._split(request)
            seed = request.seed if request.HasField("seed") else self._seed
            for numbers in number_ranges(request.offset, request.count):
                if self._stopping.is_set():
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the service is stopping")
                for position in await asyncio.to_thread(self._draw, numbers, seed, split):
                    yield data_pb2.SamplePositionsResponse(position=position_to_proto(position))

    async def RenderPrompt(  # noqa: N802
        self, request: data_pb2.RenderPromptRequest, context: Context
    ) -> data_pb2.RenderPromptResponse:
        async with grpc_errors(context):
            prompt = render_fen(request.fen, style=request.style or "fen", last_moves=request.last_moves)
        return data_pb2.RenderPromptResponse(prompt=prompt_to_proto(prompt))

    async def GetGame(  # noqa: N802
        self, request: data_pb2.GetGameRequest, context: Context
    ) -> data_pb2.GetGameResponse:
        async with grpc_errors(context):
            game, text = await asyncio.to_thread(self._order.games.find, request.id)
        return data_pb2.GetGameResponse(game=data_pb2.Game(**game.fields_with(pgn=text)))

    def _draw(self, numbers: range, seed: int, split: Split) -> list[Position]:
        return [self._order.position(number, seed=seed, split=split) for number in numbers]

    def _split(self, request: data_pb2.SamplePositionsRequest) -> Split:
        if request.split == data_pb2.SPLIT_UNSPECIFIED:
            return self._order.split
        try:
            return _SPLITS[request.split]
        except KeyError:
            raise InvalidInput(f"split {request.split}: choose from SPLIT_TRAIN, _HELDOUT, _ALL") from None


async def run(settings: DataSettings) -> None:
    """Serves until SIGINT or SIGTERM. Then streams end and open requests are completed. Raises `SetupError`
    if there is nothing to sample, or a port is taken."""
    with closing(GameCollection(setting_sources(settings.sources))) as games:
        order = PositionOrder(games, shares=Shares(*settings.shares), split=settings.split)
        await serve(data_service(order, settings))


def data_service(order: PositionOrder, settings: DataSettings) -> Service:
    """The HTTP and gRPC servers for one order."""
    stopping = asyncio.Event()
    servicer = DataServicer(order, seed=settings.seed, stopping=stopping)
    return Service.at(
        settings,
        "data",
        create_app(order, seed=settings.seed),
        grpc_port=settings.grpc_port,
        grpc_port_setting="--grpc-port (DATA_GRPC_PORT)",
        add_grpc=lambda server: data_pb2_grpc.add_DataServiceServicer_to_server(servicer, server),  # type: ignore[no-untyped-call]
        grpc_services=(SERVICE_NAME,),
        stopping=stopping,
    )
