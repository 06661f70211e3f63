"""The reward service as its callers meet it: in this process, and as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from services.reward.app import create_app
from services.reward.scorer import Scorer
from services.reward.settings import RewardSettings
from tests.waiting import wait_for

START_S = 60.0


@pytest.fixture
async def scorer(stockfish_path: str) -> AsyncIterator[Scorer]:
    scorer = await Scorer.start(RewardSettings(engine_path=Path(stockfish_path), engines=1))
    yield scorer
    await scorer.close()


@pytest.fixture
async def http(scorer: Scorer) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(scorer))
    async with httpx.AsyncClient(transport=transport, base_url="http://reward") as client:
        yield client


@dataclass
class RunningService:
    """`python -m services.reward` on free ports."""

    process: subprocess.Popen[str]
    url: str
    grpc_target: str
    log: str | None = None

    def stop(self) -> tuple[int, str]:
        """Asks it to stop; its exit status and what it logged."""
        if self.log is None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            _, self.log = self.process.communicate(timeout=30)
        return self.process.returncode, self.log


@pytest.fixture(scope="session")
def start_service(stockfish_path: str) -> Iterator[Callable[..., RunningService]]:
    """Starts a service with the given flags; all of them end with the session."""
    started = []

    def start(*flags: str) -> RunningService:
        port, grpc_port = _free_ports()
        ports = ["--port", str(port), "--grpc-port", str(grpc_port)]
        process = subprocess.Popen(
            [sys.executable, "-m", "services.reward", *ports, "--engines", "1", *flags],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "REWARD_ENGINE_PATH": stockfish_path},
        )
        service = RunningService(process, f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}")
        started.append(service)
        wait_for(f"{service.url}/readyz", process, within_s=START_S, log=lambda: service.stop()[1])
        return service

    yield start
    for service in started:
        service.stop()


@pytest.fixture(scope="session")
def service(start_service: Callable[..., RunningService]) -> RunningService:
    return start_service()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
