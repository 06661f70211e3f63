"""Starts the engines and serves the reward over HTTP and gRPC until told to stop."""

from rookery.serving import Service, serve
from rookery.v1 import reward_pb2_grpc
from services.reward.app import create_app
from services.reward.scorer import Scorer
from services.reward.servicer import SERVICE_NAME, RewardServicer
from services.reward.settings import RewardSettings


async def run(settings: RewardSettings) -> None:
    """Serves until SIGINT or SIGTERM; requests in flight finish, then the engines end.

    Raises:
        SetupError: no Stockfish, or a port taken.
    """
    scorer = await Scorer.start(settings)
    try:
        await serve(reward_service(scorer, settings))
    finally:
        await scorer.close()


def reward_service(scorer: Scorer, settings: RewardSettings) -> Service:
    """Both faces of one scorer."""
    servicer = RewardServicer(scorer)
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
    )
