"""docker compose, for real: up with the cpu profile, scaled, one replica killed, down and up again.

Nothing may be lost. It builds every image first, which takes minutes; variables of the shell reach it, such
as PYTHON_IMAGE.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from rookery.access import Access
from tests.conftest import ROOT, free_port, require
from tests.waiting import until

pytestmark = [pytest.mark.compose, pytest.mark.docker, pytest.mark.timeout(3600)]

PORTS = ("GATEWAY_HTTP", "GATEWAY_GRPC", "DATA_HTTP", "DATA_GRPC", "INFERENCE_HTTP")
PORTS += ("PROMETHEUS_HTTP", "GRAFANA_HTTP", "MLFLOW_HTTP", "VIEWER_HTTP")
BUILD_S, UP_S, STEPS_S = 2400, 900, 600.0
QUESTION = {"fen": "8/4P1k1/8/8/8/8/1K6/8 w - - 0 1", "response": "\\boxed{e8=Q}"}


class Compose:
    """A compose project of the test's own: its volumes and ports are nobody else's."""

    def __init__(self) -> None:
        self.ports = {name: free_port() for name in PORTS}
        self._secrets = tempfile.TemporaryDirectory()
        self.environment = {
            **os.environ,
            "SECRETS": self._secrets.name,
            "COMPOSE_PROJECT_NAME": f"rookery-test-{os.getpid()}",
            "COMPOSE_PROFILES": "cpu,observability,evaluation",
            "EVALUATE_EVERY": "2",
            "ROOKERY_TOML": "./tests/e2e/compose.toml",
            "RUN": "compose",
            "BATCH_GROUPS": "6",
            "GROUP_SIZE": "4",
            **{name: str(port) for name, port in self.ports.items()},
        }
        subprocess.run([ROOT / "scripts/secrets.sh"], env=self.environment, check=True)
        token = (Path(self._secrets.name) / "token.env").read_text().partition("=")[2].strip()
        self.access = Access(token)

    def run(self, *arguments: str, timeout_s: float = 120) -> str:
        command = [require("docker"), "compose", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=timeout_s
        )
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-4000:], self.troubles())
        return done.stdout

    def up(self, *arguments: str) -> None:
        self.run("up", "--detach", "--wait", *arguments, timeout_s=UP_S)

    def troubles(self) -> str:
        """The last words of whatever is not healthy."""
        command = [require("docker"), "compose", "logs", "--tail", "15", "--no-color"]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True)
        return done.stdout[-6000:]

    def containers(self, service: str) -> list[str]:
        return self.run("ps", "--quiet", service).split()

    def redis(self, *arguments: str) -> str:
        return self.run("exec", "-T", "redis", "redis-cli", *arguments)

    def status(self) -> str:
        """`rookery status`, which fails when a group is astray."""
        return self.run("exec", "-T", "exporter", "rookery", "status")

    def counts(self) -> dict[str, int]:
        words = self.redis("HGETALL", "rookery:compose:counts").split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))

    def consumers(self) -> set[str]:
        """Who has ever asked for positions."""
        words = self.redis("XINFO", "CONSUMERS", "rookery:compose:positions", "rollouts").split()
        return {name for key, name in pairwise(words) if key == "name"}

    def version(self) -> int:
        return int(self.redis("HGET", "rookery:compose:policy", "number").strip() or -1)

    def ask(self, expression: str) -> dict[str, float]:
        """Values by `instance`, from Prometheus."""
        answer: Any = httpx.get(
            f"http://127.0.0.1:{self.ports['PROMETHEUS_HTTP']}/api/v1/query", params={"query": expression}
        ).json()
        rows = answer["data"]["result"]
        return {row["metric"].get("instance", ""): float(row["value"][1]) for row in rows}

    def tracked(self) -> list[Any]:
        """What MLflow has of the run."""
        found = self.mlflow("experiments/search", {"max_results": 10})["experiments"]
        ids = [experiment["experiment_id"] for experiment in found]
        runs = self.mlflow("runs/search", {"experiment_ids": ids}).get("runs", [])
        return [run for run in runs if run["info"]["run_name"] == "compose"]

    def mlflow(self, path: str, body: dict[str, Any]) -> Any:
        url = f"http://127.0.0.1:{self.ports['MLFLOW_HTTP']}/api/2.0/mlflow/{path}"
        return httpx.post(url, json=body, timeout=30).json()

    def artifacts(self) -> set[str]:
        """Names of the files and folders that the run has left with MLflow."""
        (run,) = self.tracked()
        url = f"http://127.0.0.1:{self.ports['MLFLOW_HTTP']}/api/2.0/mlflow/artifacts/list"
        answer = httpx.get(url, params={"run_id": run["info"]["run_id"]}, timeout=30).json()
        return {file["path"] for file in answer.get("files", ())}

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, within_s=STEPS_S, every_s=1.0, log=lambda: f"{what}\n{self.troubles()}")


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    project = Compose()
    project.run("build", timeout_s=BUILD_S)
    try:
        project.up()
        yield project
    finally:
        subprocess.run(
            [require("docker"), "compose", "down", "--volumes", "--rmi", "local", "--timeout", "30"],
            cwd=ROOT, env=project.environment, check=False, capture_output=True,
        )  # fmt: skip


def test_the_loop_learns(compose: Compose) -> None:
    compose.until(lambda: compose.version() >= 3, "three training steps")
    status = compose.status()
    assert "run compose" in status
    assert "redis://exporter:***@redis:6379/0" in status


@pytest.mark.parametrize("service", ["trainer", "inference"])
def test_models_and_what_is_compiled_have_a_place(compose: Compose, service: str) -> None:
    compose.run("exec", "-T", service, "mkdir", "-p", f"/home/rookery/.cache/of-{service}")


def test_three_replicas_share_the_scoring(compose: Compose) -> None:
    compose.up("--no-recreate", "--scale", "reward=3")
    assert len(compose.containers("reward")) == 3
    share = 'rookery_reward_outcomes_total{job="reward", outcome="legal"} > 0'
    compose.until(lambda: len(compose.ask(share)) == 3, "three replicas that score")


def test_the_gateway_is_one_address_for_all(compose: Compose) -> None:
    port = compose.ports["GATEWAY_HTTP"]
    before = compose.ask('sum by (instance) (rookery_reward_requests_total{job="reward", transport="http"})')
    for _ in range(60):
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/score", json=QUESTION, headers=compose.access.headers, timeout=30
        )
        assert answer.json()["reward"] == 0.0, answer.text

    def spread() -> bool:
        now = compose.ask('sum by (instance) (rookery_reward_requests_total{job="reward", transport="http"})')
        return sum(value > before.get(instance, 0.0) for instance, value in now.items()) == 3

    compose.until(spread, "HTTP on three replicas")


def test_the_gateway_speaks_grpc(compose: Compose) -> None:
    import asyncio

    from rookery.clients import RewardClient

    async def ready() -> bool:
        target = f"dns:///127.0.0.1:{compose.ports['GATEWAY_GRPC']}"
        async with RewardClient(target, access=compose.access) as client:
            return await client.ready()

    assert asyncio.run(ready())


def test_a_killed_replica_loses_nothing(compose: Compose) -> None:
    victim = compose.containers("reward")[0]
    before = compose.version()
    subprocess.run([require("docker"), "kill", victim], check=True, capture_output=True)
    compose.until(lambda: compose.version() >= before + 3, "training without the third replica")
    port = compose.ports["GATEWAY_HTTP"]
    for _ in range(20):
        assert (
            httpx.post(
                f"http://127.0.0.1:{port}/v1/score", json=QUESTION, headers=compose.access.headers, timeout=30
            ).status_code
            == 200
        )
    compose.status()
    assert not {name for name in compose.counts() if name.startswith("dead:")}


def test_prometheus_sees_every_service(compose: Compose) -> None:
    jobs = set(re.findall(r"job_name: (\S+)", (ROOT / "deploy/prometheus/prometheus.yml").read_text()))
    jobs -= {"reward-model"}  # its profile is not started

    def seen() -> set[str]:
        url = f"http://127.0.0.1:{compose.ports['PROMETHEUS_HTTP']}/api/v1/query"
        rows: Any = httpx.get(url, params={"query": "up == 1"}).json()["data"]["result"]
        return {row["metric"]["job"] for row in rows}

    compose.until(lambda: seen() == jobs, f"all of {jobs}")
    assert not compose.ask('up{run!="compose"}')


def test_versions_are_evaluated(compose: Compose) -> None:
    def strength() -> list[dict[str, Any]]:
        command = ["exec", "-T", "arena", "sh", "-c", "cat runs/compose/strength.jsonl || true"]
        return [json.loads(line) for line in compose.run(*command).splitlines()]

    compose.until(lambda: len(strength()) >= 2, "two evaluated versions")
    assert [row["version"] % 2 for row in strength()[:2]] == [0, 0]


def test_grafana_is_up(compose: Compose) -> None:
    assert httpx.get(f"http://127.0.0.1:{compose.ports['GRAFANA_HTTP']}/api/health").status_code == 200


def test_mlflow_has_the_run(compose: Compose) -> None:
    def keys(of: str) -> set[str]:
        return {entry["key"] for run in compose.tracked() for entry in run["data"].get(of, ())}

    compose.until(lambda: "reward" in keys("metrics"), "the reward of the run")
    assert {"model", "lr", "batch_groups"} <= keys("params")


def test_down_and_up_goes_on(compose: Compose) -> None:
    """Runs last."""
    before = compose.version()
    compose.run("down", timeout_s=300)
    assert json.loads(compose.run("ps", "--all", "--format", "json") or "[]") == []
    compose.up()
    assert {"adapter", "metrics.jsonl"} <= compose.artifacts(), "left when the trainer was told to stop"
    assert compose.version() >= before
    compose.until(lambda: compose.version() >= before + 2, "training after the restart")
    compose.status()
    assert not {name for name in compose.counts() if name.startswith("dead:")}
    # The new container goes by the old one's name, and so took up what that one held.
    assert compose.consumers() == {f"{compose.environment['COMPOSE_PROJECT_NAME']}-rollouts-1"}
