"""How the real server ends: while it starts, and with clients waiting.

When vLLM's engine dies under it: test_served_canary.py."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bench.noise_adapter import write_adapter
from rookery.clients import InferenceClient
from rookery.streams import RunStreams
from tests.integration.inference.server_process import Server
from tests.servers import served_version
from tests.waiting import eventually, until

pytestmark = [pytest.mark.vllm, pytest.mark.redis, pytest.mark.torch, pytest.mark.timeout(600)]

FLAGS = ("--max-loras", "3", "--max-lora-rank", "8", "--max-num-seqs", "1")
LONG = {"model": "tiny", "prompt": "K", "max_tokens": 300, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Server]:
    from services.trainer.tiny import build_tiny

    model = build_tiny(
        tmp_path_factory.mktemp("model") / "tiny", hidden_size=64, layers=2, intermediate_size=128
    )
    server = Server(model, tmp_path_factory.mktemp("adapters"), redis_url, FLAGS)
    yield server
    server.kill()


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGINT, -signal.SIGINT),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_stopped_while_it_starts_it_ends(server: Server, number: signal.Signals, status: int) -> None:
    server.log.unlink(missing_ok=True)
    server.launch()
    assert server.process
    starting = lambda: "EngineCore" in " ".join(server.processes())  # noqa: E731
    until(starting, of=server.process, log=server.log, within_s=240, every_s=0.1)
    if number == signal.SIGINT:  # Ctrl-C in a terminal
        os.killpg(server.process.pid, number)
    else:
        server.process.send_signal(number)
    assert server.exit_status() == status
    assert number != signal.SIGINT or "Traceback" not in server.log.read_text()


async def test_started_on_the_current_version_and_stopped_while_busy_it_tells_every_client_and_ends(
    server: Server, streams: RunStreams, client: InferenceClient
) -> None:
    first = write_adapter(server.root / "v1", server.model, version=1)
    streams.policy.publish(first, epoch=streams.take_over())
    server.start()
    server.wait_for("/readyz", 200)
    assert await served_version(client) == first.version
    before = len(server.log.read_text())
    address = ("127.0.0.1", server.port)
    limits = httpx.Limits(max_connections=None)
    with socket.create_connection(address) as idle, socket.create_connection(address) as halfway:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        halfway.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        async with httpx.AsyncClient(base_url=server.url, timeout=120.0, limits=limits) as http:
            tasks = [asyncio.create_task(ask(http)) for _ in range(100)]
            tasks += [asyncio.create_task(stream(http)) for _ in range(20)]
            await eventually(lambda: are_waiting(http, 50), within_s=240, every_s=0.1)
            assert server.process
            server.process.terminate()
            ends = await asyncio.gather(*tasks)
        assert await asyncio.to_thread(server.exit_status) == 0

    assert set(ends) <= {"200 length", "503", "broken"}
    assert ends.count("503") >= 50
    assert "broken" in ends[100:]
    ending = server.log.read_text()[before:]
    assert "EngineDeadError" not in ending
    assert "Traceback" not in ending


async def ask(http: httpx.AsyncClient) -> str:
    """Status and finish reason of a completion."""
    with contextlib.suppress(httpx.TransportError):
        answer = await http.post("/v1/completions", json=LONG)
        return f"200 {finish(answer.json())}" if answer.is_success else str(answer.status_code)
    return "broken"


async def stream(http: httpx.AsyncClient) -> str:
    """Status and last finish reason of a streamed completion that came to its end."""
    with contextlib.suppress(httpx.TransportError):
        async with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer:
            reasons = [
                finish(httpx.Response(200, text=line.removeprefix("data: ")).json())
                async for line in answer.aiter_lines()
                if line.startswith("data: {")
            ]
            return f"200 {reasons[-1]}" if answer.is_success else str(answer.status_code)
    return "broken"


def finish(body: dict[str, Any]) -> Any:
    return body["choices"][0]["finish_reason"]


async def are_waiting(http: httpx.AsyncClient, count: int) -> bool:
    """Whether so many requests are in vLLM's queue."""
    lines = (await http.get("/metrics")).text.splitlines()
    counts = (float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_waiting{"))
    return sum(counts) >= count
