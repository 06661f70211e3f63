"""Servers in the test's own event loop: of HTTP, and of a reward service over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import uvicorn
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from rookery.clients import InferenceClient
from rookery.trace import PolicyVersion
from rookery.v1 import reward_pb2_grpc
from tests.conftest import free_port
from tests.waiting import eventually


async def served_version(client: InferenceClient) -> PolicyVersion | None:
    """The version that an inference server serves, or None while it is not ready."""
    adapter = await client.adapter()
    return adapter.version if adapter else None


@asynccontextmanager
async def serve_http(app: Any, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """The URL of a server of `app`."""
    port = port or free_port()
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    await eventually(lambda: server.started or task.done())
    assert server.started
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def serve_reward(
    servicer: reward_pb2_grpc.RewardServiceServicer, *, port: int = 0
) -> AsyncIterator[str]:
    """The address of a healthy server of `servicer`."""
    server = grpc.aio.server()
    reward_pb2_grpc.add_RewardServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    await health.set("", health_pb2.HealthCheckResponse.SERVING)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(None)


def one_token(body: dict[str, Any]) -> dict[str, Any]:
    """A request for one more token, answered as vLLM does. Tokens are characters. log p of a token falls with
    its place in the alphabet, the faster the longer the text before it."""
    choices = [
        {"index": index, "prompt_token_ids": list(map(ord, prompt))}
        if isinstance(prompt, str)
        else {
            "index": index,
            "logprobs": {
                "top_logprobs": [
                    {f"token_id:{t}": -(t - 97) * len(prompt) / 50 for t in body["logprob_token_ids"]}
                ]
            },
        }
        for index, prompt in enumerate(body["prompt"])
    ]
    return {"choices": choices}
