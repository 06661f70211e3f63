"""The canary with the real vLLM and the trainer's own expectation in bfloat16, then the death of its engine.

In float32: test_server.py, whose server runs in it.
"""

import asyncio
from collections.abc import Iterator

import httpx
import psutil
import pytest

from bench.noise_adapter import write_adapter
from rookery.clients import InferenceClient
from rookery.errors import PeerFault
from tests.integration.inference.canaries import (
    RANK,
    Make,
    check_that_a_canary_is_optional,
    check_that_trained_versions_are_served_under_load,
    check_that_wrong_weights_are_refused,
    committing,
)
from tests.integration.inference.server_process import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.vllm, pytest.mark.redis, pytest.mark.torch, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Server]:
    from services.trainer.tiny import build_tiny

    model = build_tiny(
        tmp_path_factory.mktemp("model") / "tiny", hidden_size=64, layers=2, intermediate_size=128
    )
    flags = ("--max-lora-rank", str(RANK), "--no-follow", "--dtype", "bfloat16")
    server = Server(model, tmp_path_factory.mktemp("adapters"), redis_url, flags)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def make(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Make:
    return committing(server, tmp_path_factory.mktemp("weights"), first=0)


async def test_versions_as_they_were_trained_are_served_also_under_load(
    client: InferenceClient, make: Make
) -> None:
    await check_that_trained_versions_are_served_under_load(client, make)


async def test_wrong_weights_are_refused(client: InferenceClient, make: Make) -> None:
    await check_that_wrong_weights_are_refused(client, make)


async def test_a_version_without_a_canary_is_served_as_ever(client: InferenceClient, make: Make) -> None:
    await check_that_a_canary_is_optional(client, make)


async def test_if_the_engine_dies_in_a_reload_that_is_told_and_the_server_ends(
    server: Server, client: InferenceClient
) -> None:
    """The reload is answered with 503, and the status is 1."""
    assert server.process
    children = psutil.Process(server.process.pid).children(recursive=True)
    core = next(child for child in children if "EngineCore" in " ".join(child.cmdline()))
    async with httpx.AsyncClient(base_url=server.url) as http:

        async def verified() -> str:
            lines = (await http.get("/metrics")).text.splitlines()
            return next(line for line in lines if 'reload_seconds_count{stage="verify"}' in line)

        async def has_begun() -> bool:
            return await verified() != before

        before = await verified()
        core.suspend()
        adapter = write_adapter(server.root / "last", server.model, version=100)
        reload = asyncio.create_task(client.reload(adapter))
        await eventually(has_begun, every_s=0.1)
        assert not reload.done()
        core.kill()
        with pytest.raises(PeerFault, match=r"503 .*vLLM's engine has died"):
            await reload
    assert await asyncio.to_thread(server.exit_status) == 1
