"""A reward that costs nothing: a number made from the letters of an answer.

Both sides call `free_reward`; ours through a real gRPC service, because that is how ours is made.
"""

import asyncio
import sys

import grpc

from rookery.settings import Port, Settings
from rookery.trace import Outcome, Verdict


def free_reward(text: str) -> float:
    """In [-1, 0), different for most pairs of answers, so that no group is without a gradient.

    >>> free_reward("e4") != free_reward("d4")
    True
    """
    return sum(text.encode()) % 101 / 101 - 1


class FreeRewardSettings(Settings):
    """Where the free reward listens."""

    host: str = "127.0.0.1"
    """Address."""
    port: Port = 8080
    """HTTP port of the probes."""
    grpc_port: Port = 50051
    """gRPC port."""


async def serve_free(settings: FreeRewardSettings) -> None:
    """Serves until told to stop."""
    from fastapi import FastAPI

    from rookery.codec import verdict_to_proto
    from rookery.serving import Service, add_probes, serve
    from rookery.v1 import reward_pb2, reward_pb2_grpc

    class FreeReward(reward_pb2_grpc.RewardServiceServicer):
        """Judges every answer legal."""

        async def ScoreBatch(  # noqa: N802
            self,
            request: reward_pb2.ScoreBatchRequest,
            context: "grpc.aio.ServicerContext[reward_pb2.ScoreBatchRequest, reward_pb2.ScoreBatchResponse]",
        ) -> reward_pb2.ScoreBatchResponse:
            items = [
                reward_pb2.ScoreBatchItem(
                    verdict=verdict_to_proto(Verdict(free_reward(item.response), Outcome.LEGAL, "free"))
                )
                for item in request.items
            ]
            return reward_pb2.ScoreBatchResponse(items=items)

    async def ready() -> str | None:
        return None

    def add_grpc(server: grpc.aio.Server) -> None:
        reward_pb2_grpc.add_RewardServiceServicer_to_server(FreeReward(), server)  # type: ignore[no-untyped-call]

    app = FastAPI()
    add_probes(app, ready=ready)
    await serve(
        Service(
            name="free reward",
            app=app,
            host=settings.host,
            port=settings.port,
            port_setting="--port",
            grpc_port=settings.grpc_port,
            grpc_port_setting="--grpc-port",
            add_grpc=add_grpc,
        )
    )


if __name__ == "__main__":
    asyncio.run(serve_free(FreeRewardSettings.parse(sys.argv[1:], prog="python -m bench.loop.reward")))
