"""The whole loop, real in every part: PGN, Redis, vLLM, Stockfish, gradients, and back into vLLM."""

import json
import math
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import chess
import httpx
import psutil
import pytest
from prometheus_client.metrics import MetricWrapperBase

from chess_datasets.__main__ import main as data
from rookery import metrics
from rookery.plots.steps import read_strength
from rookery.trace import Outcome, TraceGroup
from scripts.dashboards.__main__ import BOARDS
from tests.conftest import A_WHOLE_RUN, ROOT, RedisServer, free_port, require
from tests.curl import curls, run_curl
from tests.e2e.watching import copied_groups, logs, started, watched
from tests.prometheus_server import VARIABLES, PrometheusServer
from tests.waiting import until

pytestmark = [*A_WHOLE_RUN, pytest.mark.timeout(900)]

STEPS = 4
BATCH_GROUPS = 6
GROUP_SIZE = 4

NOT_IN_THIS_RUN = {
    "ARCHIVE_MISSED",
    "BACKPRESSURE_S",
    "ENGINES_BUSY",
    "ENGINE_RESTARTS",
    "GAMES_SKIPPED",
    "PEERS_WAIT_S",
    "POSITIONS_QUARANTINED",
    "REDIS_RETRIES",
    "REWARD_MODEL_ANSWERS",
    "REWARD_MODEL_PASS_S",
    "ROLLOUT_EPISODES",
    "ROLLOUT_TURNS",
    "REWARD_MODEL_WAITING",
    "REWARD_QUEUE",
    "RUN_ASTRAY",
    "RUN_ENDED",
    "TRAINER_STALE_TURNS",
    "WAITING_S",
}
"""Metrics that only trouble moves, or a service that `rookery up` does not start; or that say what is so
in the moment of a scrape, which may be nothing."""


@dataclass
class Loop:
    """A running `rookery up` and what was seen on its `traces` stream."""

    process: subprocess.Popen[bytes]
    run_dir: Path
    inference: str
    groups: list[TraceGroup]

    def metrics(self) -> list[dict[str, float]]:
        file = self.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, condition: Callable[[], object]) -> None:
        said = lambda: logs(self.run_dir.parent)  # noqa: E731
        until(condition, within_s=600, every_s=0.2, of=self.process, log=said)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    folder = tmp_path_factory.mktemp("e2e")
    port = free_port()
    server = RedisServer(folder)
    flags = [
        "--no-view", "--run", "e2e", "--runs-dir", folder, "--redis-url", server.url, "--nodes", 200,
        "--batch-groups", BATCH_GROUPS, "--group-size", GROUP_SIZE, "--evaluate-every", 2,
        "--evaluate-positions", 8,
    ]  # fmt: skip
    for setting in (
        f"inference.port={port}", "trainer.keep=100000", "archive.file_age_s=2", "arena.pairs=1",
        "arena.max_plies=12", f"reward.redis_url={server.url}",
    ):  # fmt: skip
        flags += ["--set", setting]
    with (
        server,
        started("up", *flags, log=folder / "up.log") as process,
        copied_groups(server.url, "e2e") as groups,
    ):
        loop = Loop(process, folder / "e2e", f"http://127.0.0.1:{port}", groups)
        loop.until(lambda: len(loop.metrics()) >= STEPS)
        yield loop


def test_versions_advance_one_a_step(loop: Loop) -> None:
    assert [row["version"] for row in loop.metrics()[:STEPS]] == list(range(1, STEPS + 1))


def test_the_adapter_that_answers_is_not_the_base(loop: Loop) -> None:
    board = loop.groups[0].prompt.messages[-1].content

    def answered(model: str) -> httpx.Response:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": board}],
            "temperature": 0,
            "max_tokens": 8,
            "logprobs": True,
        }
        return httpx.post(f"{loop.inference}/v1/chat/completions", json=body, timeout=60)

    for _ in range(10):  # on a busy machine, newer versions can replace it before it answers
        served = httpx.get(f"{loop.inference}/policy").json()
        if (adapted := answered(served["name"])).status_code == 200:
            break
    assert served["version"] >= 1
    models = {card["id"] for card in httpx.get(f"{loop.inference}/v1/models").json()["data"]}
    base = answered(next(name for name in models if not name.startswith("policy")))
    first, second = (
        [token["logprob"] for token in answer.json()["choices"][0]["logprobs"]["content"]]
        for answer in (adapted, base)
    )
    assert first != second


def test_a_move_as_the_pages_ask_for_one(loop: Loop) -> None:
    pages = [ROOT / "README.md", ROOT / "docs" / "guide.md"]
    asked, also_asked = (command for page in pages for command in curls(page) if "/v1/move" in command)
    shown = pages[0].read_text().partition(asked)[2].split("```json\n")[1].split("```")[0]
    for command in (asked, also_asked):
        answer = run_curl(command, {"http://localhost:8000": loop.inference}).json()
        assert answer.keys() == json.loads(shown).keys()
        assert answer["style"] == loop.groups[0].prompt.style


@pytest.fixture(scope="module")
def prometheus(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """Has watched two steps and an evaluation, so that every rate has something to be made of."""
    require("prometheus")
    with watched(loop.run_dir, tmp_path_factory.mktemp("watching")) as prometheus:
        begun = len(loop.metrics())
        loop.until(lambda: len(loop.metrics()) >= begun + 2 and len(read_strength(loop.run_dir)) >= 2)
        yield prometheus


@pytest.mark.prometheus
def test_every_query_of_every_panel_returns_data(prometheus: PrometheusServer) -> None:
    empty = {
        (board.name, panel.title, expression)
        for board in BOARDS
        for _, panels in board.rows
        for panel in panels
        for expression, _ in panel.queries
    }
    deadline = time.monotonic() + 90.0
    while empty and time.monotonic() < deadline:
        empty = {asked for asked in empty if not any(map(math.isfinite, values(prometheus, asked[2])))}
        time.sleep(1.0)
    assert empty == set()


@pytest.mark.prometheus
def test_every_metric_is_emitted_by_someone(prometheus: PrometheusServer) -> None:
    """A series with labels exists because somebody made it; others exist everywhere, and must have moved."""
    silent = set()
    for name, metric in vars(metrics).items():
        if isinstance(metric, MetricWrapperBase):
            family = next(iter(metric.describe()))
            asked = family.name + {"counter": "_total", "histogram": "_count"}.get(family.type, "")
            # Over time: the trainer may have ended, and with it its series.
            seen = f"max_over_time({asked}[10m])"
            if not values(prometheus, seen if metric._labelnames else f"{seen} != 0"):
                silent.add(name)
    assert silent <= NOT_IN_THIS_RUN, "nobody emits these"


@pytest.mark.prometheus
def test_no_version_becomes_a_label(prometheus: PrometheusServer) -> None:
    series = prometheus.ask('{job=~".+"}')
    assert [labels for labels, _ in series if "policy-v" in json.dumps(labels)] == []


@pytest.mark.prometheus
def test_every_metric_has_the_label_of_its_run(prometheus: PrometheusServer) -> None:
    labels = [labels for labels, _ in prometheus.ask('{job=~".+", __name__!~"ALERTS.*"}')]
    assert {found.get("run") for found in labels} == {VARIABLES["$run"]}


@pytest.mark.prometheus
def test_a_healthy_run_raises_no_alarm(prometheus: PrometheusServer) -> None:
    alarms = {
        (alarm["alertname"], alarm.get("job")) for alarm, _ in prometheus.ask('ALERTS{alertstate="firing"}')
    }
    assert alarms <= {("ServiceDown", "data")}, "`rookery up` starts no HTTP server for positions"


def values(prometheus: PrometheusServer, expression: str) -> list[float]:
    return [value for _, value in prometheus.ask(expression)]


def test_the_policy_s_own_moves_make_preference_pairs(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejected is what the policy played; the engine's move, which no text names, is chosen."""
    for module in ("positions.numbered", "pairs.dataset"):
        monkeypatch.setattr(f"chess_datasets.{module}.PART_SIZE", 32)
    argv = ["pairs", "--count", "12", "--nodes", "500", "--inference", loop.inference, "--model", "policy"]
    assert data([*argv, "--jsonl", "pairs.jsonl", "--out", str(tmp_path)]) == 0
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    own = [pair for pair in pairs if pair["origin"] == "policy"]
    assert (len(pairs), bool(own)) == (12, True)
    for pair in own:
        assert f"\\boxed{{{pair['rejected_move']['uci']}}}" in pair["policy_text"].replace(" ", "")
        assert pair["policy"] == "policy"
    for pair in pairs:
        board = chess.Board(pair["fen"])
        for said, move in (("chosen", "chosen_move"), ("rejected", "rejected_move")):
            assert chess.Move.from_uci(pair[move]["uci"]) in board.legal_moves
            assert [turn["content"] for turn in pair[said]] == [f"\\boxed{{{pair[move]['uci']}}}"]
        assert pair["chosen_move"] != pair["rejected_move"]
        assert pair["gap"] == pytest.approx(pair["win_chosen"] - pair["win_rejected"])
        assert pair["gap"] >= 0.05


def test_ctrl_c_ends_cleanly_and_leaves_nothing(loop: Loop) -> None:
    """It ends the loop. Below are the tests of what it leaves: while it runs, it takes the time of others."""
    loop.process.send_signal(signal.SIGINT)
    assert loop.process.wait(timeout=120) in (0, 130)
    running = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert [line for line in running if str(loop.run_dir) in line] == []
    counts = loop.metrics()[-1]
    assert counts["step"] >= STEPS


def test_groups_are_complete_and_scored(loop: Loop) -> None:
    assert len(loop.groups) >= STEPS * BATCH_GROUPS
    assert len({group.id for group in loop.groups}) == len(loop.groups)
    for group in loop.groups:
        assert len(group.traces) == GROUP_SIZE
        assert len({trace.completion.seed for trace in group.traces}) == GROUP_SIZE
        for trace in group.traces:
            verdict = trace.verdict
            assert (verdict.outcome is Outcome.LEGAL) == (verdict.regret is not None)
            assert verdict.reward_version


def test_every_trace_was_sampled_by_the_version_it_names(loop: Loop, tmp_path: Path) -> None:
    """The named adapter gives the server's log-probabilities to 1e-5 in the mean, its neighbours do not."""
    import torch

    from rookery.config.trainer import TrainerSettings
    from services.trainer.batches.micro_batches import collate
    from services.trainer.batches.rows import make_rows
    from services.trainer.model.policy import Policy

    policy = Policy(TrainerSettings(model=ROOT / "models/rook-tiny", run_dir=tmp_path, device="cpu"))

    def distance(group: TraceGroup, number: int) -> "torch.Tensor":
        policy.load_version(loop.run_dir / "adapters" / f"policy-v{number:06d}")
        advantages = [[0.0] * len(group.traces)]
        made = make_rows([group], advantages, version=number, mask_truncated=False, row_tokens=4096)
        batch = collate(made)
        with torch.no_grad():
            logprobs = policy.score(batch).logprobs_N
        return (logprobs - batch.behaviour_N).abs()

    seen = {group.policy.number for group in loop.groups}
    assert len(seen) >= 2, "a new version was picked up while the loop ran"
    for group in loop.groups[: STEPS * BATCH_GROUPS]:
        difference = distance(group, group.policy.number)
        assert difference.mean() < 1e-5, group.id
        assert difference.max() < 5e-5, "a rare token in thousands passes 1e-5 in float32"
    last = max((g for g in loop.groups[: STEPS * BATCH_GROUPS]), key=lambda g: g.policy.number)
    assert distance(last, last.policy.number - 1).max() > 1e-4


def test_the_trainer_saw_no_mismatch_at_any_step(loop: Loop) -> None:
    rows = loop.metrics()
    assert all(0 < row["mismatch_mean"] < 1e-5 and row["mismatch_max"] < 5e-5 for row in rows)
    assert len({row["mismatch_age"] for row in rows}) >= 2, "not of the current version alone"
