"""Starts the engines and serves the reward over HTTP and gRPC."""

import asyncio
import gc

from rookery.serving import Service, serve
from rookery.v1 import reward_pb2_grpc
from services.reward.app import create_app
from services.reward.scorer import Scorer
from services.reward.servicer import SERVICE_NAME, RewardServicer
from services.reward.settings import RewardSettings


async def run(settings: RewardSettings) -> None:
    """Serves until SIGINT or SIGTERM. Requests in flight are then finished, and the engines stopped.

    Raises:
        SetupError: Stockfish was not found or does not work, or a port is taken.
    """
    scorer = await Scorer.start(settings)
    _spare_the_collector()
    try:
        await serve(reward_service(scorer, settings))
    finally:
        await scorer.close()


def _spare_the_collector() -> None:
    """Makes the garbage collector run less often, because each run scans the whole cache of analyses.

    Little is lost: loaded modules are never freed, and analyses have no reference cycles.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def reward_service(scorer: Scorer, settings: RewardSettings) -> Service:
    """The service that answers over HTTP and gRPC with `scorer`."""
    stopping = asyncio.Event()
    servicer = RewardServicer(scorer, stopping=stopping)
    return Service(
        name="reward",
        app=create_app(scorer),
        host=settings.host,
        port=settings.port,
        port_setting="--port (REWARD_PORT)",
        grpc_port=settings.grpc_port,
        grpc_port_setting="--grpc-port (REWARD_GRPC_PORT)",
        add_grpc=lambda server: reward_pb2_grpc.add_RewardServiceServicer_to_server(servicer, server),  # type: ignore[no-untyped-call]
        grpc_services=(SERVICE_NAME,),
        stopping=stopping,
        ready=scorer.unavailable_reason,
    )
