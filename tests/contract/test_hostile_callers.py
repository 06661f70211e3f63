"""Callers that mean no good get a refusal, not a 5xx, and cost neither the service nor its memory."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests import hostile
from tests.conftest import ROOT, free_port
from tests.waiting import wait_for

REFUSALS = {0, 100, 400, 404, 405, 413, 422}
"""0 is a connection that ends without an answer."""

GROWTH = 96 << 20
"""Bytes that a service may keep of six bodies of the largest size, for both transports."""


@dataclass
class Target:
    """A service in a process of its own, and the routes that take a body."""

    name: str
    argv: tuple[str, ...]
    paths: tuple[str, ...]
    methods: tuple[str, ...] = ()


TARGETS = [
    Target("data", ("services.data",), ("/v1/render",), ("/rookery.v1.DataService/SamplePositions",)),
    pytest.param(
        Target(
            "reward",
            ("services.reward", "--engines", "1"),
            ("/v1/score", "/v1/score/batch"),
            tuple(f"/rookery.v1.RewardService/{name}" for name in ("Score", "ScoreBatch", "ScoreStream")),
        ),
        marks=pytest.mark.stockfish,
    ),
    Target("exporter", ("launcher", "exporter", "--redis-url", "redis://127.0.0.1:9/0"), ("/metrics",)),
]


@pytest.fixture(params=TARGETS, ids=lambda target: target.name)
def attacked(request: pytest.FixtureRequest) -> Iterator[tuple[Target, int, str, str]]:
    """The target, its process, its URL and its gRPC target."""
    target, port, grpc_port = request.param, free_port(), free_port()
    ports = ["--port", str(port), *(["--grpc-port", str(grpc_port)] if target.methods else [])]
    command = [sys.executable, "-m", *target.argv, *ports]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/healthz", process, within_s=60.0)
        yield target, process.pid, url, f"127.0.0.1:{grpc_port}"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_service_refuses_and_goes_on(attacked: tuple[Target, int, str, str]) -> None:
    target, pid, url, grpc_target = attacked
    before = hostile.settled_memory(pid)

    answers = hostile.attack_http(url, target.paths)
    codes = hostile.attack_grpc(grpc_target, target.methods) if target.methods else {}

    assert set(answers) <= REFUSALS
    assert set(codes) <= {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNKNOWN"}  # UNKNOWN: no protobuf
    assert hostile.settled_memory(pid) - before < GROWTH
    assert httpx.get(f"{url}/healthz").status_code == 200
