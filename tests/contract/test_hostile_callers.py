"""Callers that mean no good get a refusal, not a 5xx, and cost neither the service nor its memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from rookery.access import OPEN, TOKEN_VARIABLE, Access
from rookery.connections import raise_descriptor_limit
from rookery.v1 import data_pb2, reward_pb2
from tests import hostile, openapi
from tests.conftest import free_port
from tests.processes import started
from tests.viewed_runs import hostile_group, write_run

REFUSALS = {0, 100, 400, 401, 404, 405, 413, 422}
"""0 is a connection that ends without an answer."""

CODES = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN"}
"""UNKNOWN is the answer to what is not protobuf, UNAVAILABLE that of a connection at its end."""

MAX_LOG_BYTES = 1 << 20

REDIS = ("--redis-url", "REDIS", "--run", "hostile")
NOBODY = "127.0.0.1:9"
ACCESS = Access("a-token-for-the-tests-0123456789")


@dataclass
class Target:
    """A service in a process of its own, and routes that raw bytes are sent to.

    In `argv`, REDIS stands for its URL, and FOLDER for an empty folder but for the viewer's runs.
    """

    name: str
    argv: tuple[str, ...]
    paths: tuple[str, ...] = ("/metrics",)
    grpc: ServiceDescriptor | None = None
    access: Access = OPEN
    growth: int = 96 << 20
    """Bytes of memory that it may keep."""
    up: str = "/healthz"
    """Answers 200 once the service is to be attacked."""
    endless: tuple[str, ...] = ()
    """Paths whose answers have no end."""


def _target(*needs: str, **fields: object) -> object:
    target = Target(**fields)  # type: ignore[arg-type]
    return pytest.param(target, marks=[getattr(pytest.mark, need) for need in needs], id=target.name)


TARGETS = [
    _target(
        name="data",
        argv=("services.data",),
        paths=("/v1/render",),
        grpc=data_pb2.DESCRIPTOR.services_by_name["DataService"],
    ),
    _target(
        "stockfish",
        name="reward",
        argv=("services.reward", "--engines", "1", "--nodes", "100"),
        paths=("/v1/score", "/v1/score/batch", "/v1/episodes", "/v1/slime", "/v1/openrlhf"),
        growth=256 << 20,  # batches of 16 MiB in several threads, of which malloc keeps some
        grpc=reward_pb2.DESCRIPTOR.services_by_name["RewardService"],
    ),
    _target(
        "redis",
        "torch",
        name="trainer",
        argv=(
            *("services.trainer", "--model", "models/rook-tiny", "--run-dir", "FOLDER/run", *REDIS),
            *("--device", "cpu", "--threads", "1", "--inference-urls", ""),
        ),
        paths=("/adapters/policy-v000000/adapter_model.safetensors",),
        up="/readyz",
    ),
    _target(
        "redis",
        name="viewer",
        argv=("services.viewer", "--runs-dir", "FOLDER", "--redis-url", "REDIS"),
        paths=("/api/play/position", "/api/runs/one/ask", "/api/runs/one/groups", "/static/app.js"),
        access=ACCESS,
        endless=("/api/runs/{run}/events",),
    ),
    _target("redis", name="feed", argv=("services.data.feed", *REDIS)),
    _target("redis", name="archive", argv=("services.data.archiver", "--out", "FOLDER/archive", *REDIS)),
    _target(
        "redis",
        name="rollouts",
        argv=(
            *("services.inference.rollouts", "--batch-groups", "4", *REDIS),
            *("--inference-urls", f"http://{NOBODY}", "--reward-target", NOBODY),
        ),
    ),
    _target(
        "redis",
        name="arena",
        argv=(
            *("launcher", "serve", "arena", "--run-dir", "FOLDER/run", *REDIS),
            *("--inference-url", f"http://{NOBODY}", "--reward-target", NOBODY),
            *("--data-url", f"http://{NOBODY}"),
        ),
    ),
    _target(
        name="exporter", argv=("launcher", "exporter", "--redis-url", f"redis://{NOBODY}/0"), access=ACCESS
    ),
]


@pytest.fixture(params=TARGETS)
def attacked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Target, int, str, str]]:
    """The target, its process, its URL and its gRPC target."""
    target, port, grpc_port = request.param, free_port(), free_port()
    redis = request.getfixturevalue("redis_url") if "REDIS" in target.argv else ""
    write_run(tmp_path, "one", seed=0, more=(hostile_group("one"),))
    argv = [word.replace("REDIS", redis).replace("FOLDER", str(tmp_path)) for word in target.argv]
    ports = ["--port", str(port), *(["--grpc-port", str(grpc_port)] if target.grpc else [])]
    environment = {TOKEN_VARIABLE: target.access.token} if target.access.token else {}
    url, log = f"http://127.0.0.1:{port}", tmp_path / "log"
    raise_descriptor_limit()
    with started(
        *(*argv, *ports),
        log=log,
        ready=f"{url}{target.up}",
        environment=environment,
        descriptors=hostile.DESCRIPTORS,
    ) as process:
        yield target, process.pid, url, f"127.0.0.1:{grpc_port}"
        assert process.poll() is None


def test_a_service_refuses_and_goes_on(attacked: tuple[Target, int, str, str], tmp_path: Path) -> None:
    target, pid, url, grpc_target = attacked
    before = hostile.settled_memory(pid)

    # Some 0.05 s, and what its other threads do meanwhile. A pattern of quadratic time took seconds.
    assert hostile.healthz_cpu_s(url, pid) < 0.5
    answers = hostile.attack_http(url, target.paths, access=target.access)
    codes = hostile.attack_grpc(grpc_target, target.grpc) if target.grpc else {}
    if target.grpc:
        assert hostile.send_zeros(grpc_target, target.grpc) == "UNIMPLEMENTED"
    openapi.attack(url, access=target.access, without=target.endless)

    assert set(answers) <= REFUSALS | {200}
    assert set(codes) <= CODES
    assert hostile.settled_memory(pid) - before < target.growth
    assert httpx.get(f"{url}/healthz").status_code == 200
    assert (tmp_path / "log").stat().st_size < MAX_LOG_BYTES
    if target.grpc:
        log = (tmp_path / "log").read_text()
        assert "a gRPC message does not decode" in log
        assert "DecodeError" not in log  # nor a traceback
