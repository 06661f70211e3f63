"""`python -m services.reward`: starts the service, as `rookery serve reward`."""

import gc

from rookery.command_line import main_of
from rookery.config.reward import RewardSettings


async def run(settings: RewardSettings) -> None:
    """Serves until SIGINT or SIGTERM. Requests in flight are then finished, and the engines stopped. Raises
    `SetupError` if Stockfish was not found or does not work, or a port is taken."""
    from rookery.serving import Service, serve
    from rookery.v1.reward_pb2_grpc import add_RewardServiceServicer_to_server
    from services.reward.app import create_app
    from services.reward.scorer import Scorer
    from services.reward.servicer import SERVICE_NAME, RewardServicer

    scorer = await Scorer.start(settings)
    # Each run of the garbage collector scans the whole cache of analyses, so it runs less often. Little is
    # lost: loaded modules are never freed, and analyses have no reference cycles.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    servicer = RewardServicer(scorer)
    service = Service.at(
        settings,
        "reward",
        create_app(scorer),
        grpc_port=settings.grpc_port,
        grpc_port_setting="--grpc-port (REWARD_GRPC_PORT)",
        add_grpc=lambda server: add_RewardServiceServicer_to_server(servicer, server),  # type: ignore[no-untyped-call]
        grpc_services=(SERVICE_NAME,),
        ready=scorer.unavailable_reason,
    )
    async with scorer:
        await serve(service)


main = main_of("serve reward", __name__)
