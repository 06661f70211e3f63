"""Evaluation while a run trains: the real vLLM, Redis and reward service; the test plays the trainer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from bench.noise_adapter import write_adapter
from launcher.runs import write_held_out
from rookery.mlflow_run import connect
from rookery.plots.steps import read_strength
from rookery.streams import RunStreams
from tests.conftest import A_WHOLE_RUN, ROOT, RedisServer, free_port
from tests.curl import curls, run_curl
from tests.integration.inference.server_process import RUN, Server
from tests.processes import started
from tests.waiting import until as until_within

pytestmark = [*A_WHOLE_RUN, pytest.mark.timeout(900)]

MODEL = ROOT / "models" / "rook-tiny"
EVERY = 3
LEGAL = "evaluation_legal_rate_greedy"
until = partial(until_within, within_s=240)


class Run:
    """A run without a trainer: its Redis, its inference server, and versions published by hand."""

    def __init__(self, root: Path, redis_url: str) -> None:
        self.folder = root / "run"
        self.folder.mkdir()
        flags = ("--max-loras", "3", "--max-lora-rank", "8", "--leases", "1")
        self.server = Server(MODEL, root, redis_url, flags)
        self.reward_port, self.port = free_port(), 0
        self.streams = RunStreams(redis_url, RUN)
        self.epoch = self.streams.take_over()
        self.positions = write_held_out(
            root / "heldout.jsonl", source=str(ROOT / "samples" / "lichess.pgn.zst"), count=12, seed=0
        )

    def publish(self, version: int, *, scale: float = 0.02) -> None:
        adapter = write_adapter(self.server.root / f"v{version}", MODEL, version=version, scale=scale)
        self.streams.policy.publish(adapter, epoch=self.epoch)
        until(lambda: self.served().get("version") == version)

    def served(self) -> dict[str, object]:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.server.url}/policy").json()
        return {}

    def names(self) -> set[str]:
        return {card["id"] for card in httpx.get(f"{self.server.url}/v1/models").json()["data"]}

    def versions(self) -> list[int]:
        return [row["version"] for row in read_strength(self.folder)]

    @contextmanager
    def rewarding(self) -> Iterator[None]:
        flags = ("--port", str(free_port()), "--grpc-port", str(self.reward_port))
        with started(
            "services.reward", *flags, "--nodes", "100", "--engines", "1", log=self.folder / "reward.log"
        ):
            yield

    def watching(self):
        self.port = free_port()
        return started(
            "launcher", "serve", "arena", "--run", RUN, "--redis-url", self.server.redis_url,
            "--run-dir", str(self.folder), "--every", str(EVERY), "--inference-url", self.server.url,
            "--reward-target", f"dns:///127.0.0.1:{self.reward_port}", "--positions", str(self.positions),
            "--count", "12", "--samples", "1", "--pairs", "1", "--max-plies", "30", "--port", str(self.port),
            log=self.folder / "arena.log",
        )  # fmt: skip

    def readiness(self) -> tuple[int, str]:
        with suppress(httpx.TransportError):
            answer = httpx.get(f"http://127.0.0.1:{self.port}/readyz")
            return answer.status_code, answer.text
        return 0, ""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    root = tmp_path_factory.mktemp("watch")
    redis = RedisServer(tmp_path_factory.mktemp("redis"))
    redis.start()
    made = Run(root, redis.url)
    try:
        made.server.start()
        yield made
    finally:
        made.server.kill()
        redis.stop()


def test_a_fault_of_a_peer_is_waited_out_and_the_version_kept_meanwhile(run: Run) -> None:
    run.publish(0)
    with run.watching():
        until(lambda: run.readiness()[0] == 503 and "reward service" in run.readiness()[1])
        for version in (1, 2):
            run.publish(version)
        assert {"policy-v000000", "policy-v000001", "policy-v000002"} <= run.names(), (
            "two are served, one leased"
        )
        assert run.versions() == []
        # The process is killed here. Its lease lasts for a while.


def test_killed_and_started_again_it_evaluates_no_version_twice(run: Run) -> None:
    client = connect(run.folder)
    run_id = client.create_run(client.create_experiment("rookery")).info.run_id
    (run.folder / "mlflow.json").write_text(json.dumps({"run_id": run_id}))
    with run.rewarding():
        with run.watching():
            until(lambda: run.versions() == [0])
            until(lambda: "policy-v000000" not in run.names())
        with run.watching():
            run.publish(3)
            until(lambda: run.versions() == [0, 3])
            for version in (4, 5):
                run.publish(version)
            until(lambda: run.readiness()[0] == 200)
            until(lambda: [p.step for p in client.get_metric_history(run_id, LEGAL)] == [0, 3])
            metrics = httpx.get(f"http://127.0.0.1:{run.port}/metrics").text
            lines = (run.folder / "strength.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert "rookery_evaluation_version 3.0" in metrics
    assert 'rookery_evaluation{metric="legal_rate_greedy",value="high"}' in metrics
    first, last = read_strength(run.folder)
    assert first["sha256"] != last["sha256"] and first["settings"] == last["settings"]
    assert {"legal_rate", "legal_rate_greedy", "regret_legal_greedy", "legal_rate_match", "elo"} <= first[
        "metrics"
    ].keys()
    references = ("regret_legal_random", "action_accuracy_random")
    assert [first["metrics"][name] for name in references] == [last["metrics"][name] for name in references]
    assert 0 < first["metrics"]["distinct_candidates"]["mean"] <= 1
    assert 0 < first["metrics"]["piece_distance"]["mean"] <= 1
    low, high = first["metrics"]["legal_rate_greedy"]["ci95"]
    assert 0 <= low <= first["metrics"]["legal_rate_greedy"]["mean"] <= high <= 1


def test_a_version_made_again_after_the_run_went_back_is_evaluated_again(run: Run) -> None:
    before = read_strength(run.folder)
    with run.rewarding(), run.watching():
        adapter = write_adapter(run.server.root / "again", MODEL, version=33)
        again = type(adapter)(
            type(adapter.version)(3, adapter.version.sha256), adapter.path, adapter.base_model
        )
        run.epoch = run.streams.take_over()  # it is another trainer that goes back
        run.streams.policy.publish(again, epoch=run.epoch)
        until(lambda: read_strength(run.folder)[-1]["sha256"] == adapter.version.sha256)
    assert run.versions() == [0, 3]
    assert read_strength(run.folder)[0] == before[0]


def test_a_policy_like_the_base_gives_the_answer_that_the_front_page_shows(run: Run) -> None:
    run.publish(6, scale=0.0)
    readme = ROOT / "README.md"
    move = next(command for command in curls(readme) if "/v1/move" in command)
    answer = run_curl(move, {"http://localhost:8000": run.server.url}).json()
    shown = readme.read_text().partition(move)[2].split("```json\n")[1].split("```")[0]
    assert answer == json.loads(shown)


def test_the_curve_shows_the_strength(run: Run) -> None:
    command = [sys.executable, "-m", "arena", "curve", str(run.folder)]
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.6}\n')
    subprocess.run(command, cwd=ROOT, check=True)
    with_strength = (run.folder / "learning_curve.png").read_bytes()
    (run.folder / "strength.jsonl").rename(run.folder / "away.jsonl")
    subprocess.run(command, cwd=ROOT, check=True)
    assert len((run.folder / "learning_curve.png").read_bytes()) < len(with_strength) / 2
