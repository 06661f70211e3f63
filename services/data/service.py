"""Reads the games and serves positions over HTTP and gRPC."""

import asyncio
from contextlib import closing

from rookery.serving import Service, serve
from rookery.v1 import data_pb2_grpc
from services.data.app import create_app
from services.data.pgn.collection import GameCollection
from services.data.positions.numbered import PositionOrder
from services.data.servicer import SERVICE_NAME, DataServicer
from services.data.settings import DataSettings


async def run(settings: DataSettings) -> None:
    """Serves until SIGINT or SIGTERM. Then streams end and open requests are completed.

    Raises:
        SetupError: there is nothing to sample, or a port is taken.
    """
    with closing(GameCollection(settings.paths)) as games:
        order = PositionOrder(games, shares=settings.shares, split=settings.split)
        await serve(data_service(order, settings))


def data_service(order: PositionOrder, settings: DataSettings) -> Service:
    """The HTTP and gRPC servers for one order."""
    stopping = asyncio.Event()
    servicer = DataServicer(order, seed=settings.seed, stopping=stopping)
    return Service(
        name="data",
        app=create_app(order, seed=settings.seed),
        host=settings.host,
        port=settings.port,
        port_setting="--port (DATA_PORT)",
        access=settings.access,
        grpc_port=settings.grpc_port,
        grpc_port_setting="--grpc-port (DATA_GRPC_PORT)",
        add_grpc=lambda server: data_pb2_grpc.add_DataServiceServicer_to_server(servicer, server),  # type: ignore[no-untyped-call]
        grpc_services=(SERVICE_NAME,),
        stopping=stopping,
    )
