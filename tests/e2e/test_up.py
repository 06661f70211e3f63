"""A run of `rookery up`, with a token and its own Redis: killed, continued, damaged, taken back."""

import contextlib
import json
import os
import signal
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import chess
import httpx
import pytest
from rich.console import Console

from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from launcher import plan
from launcher.runs import settle_settings
from launcher.session import Session
from launcher.settings import UpSettings
from rookery.access import TOKEN_VARIABLE
from rookery.errors import SetupError
from rookery.plots.steps import read_strength
from tests.conftest import A_WHOLE_RUN, ROOT
from tests.e2e.watching import ROOKERY
from tests.waiting import until, wait_for

pytestmark = [*A_WHOLE_RUN, pytest.mark.timeout(900)]

TOKEN = "the-token-of-the-whole-run-01234"


class Up:
    """A running `rookery up`; whatever it starts inherits a mark in its environment."""

    def __init__(self, runs: Path, *flags: str) -> None:
        command = (*ROOKERY, "up", "--runs-dir", str(runs), "--run", "r", *flags)
        self.run = runs / "r"
        self._said = (runs / "said").open("ab")
        self._mark = f"ROOKERY_TEST_RUN={runs}"
        environment = {**os.environ, "ROOKERY_TEST_RUN": str(runs), TOKEN_VARIABLE: TOKEN}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=self._said, stderr=self._said
        )

    def steps(self) -> list[int]:
        file = self.run / "metrics.jsonl"
        return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, condition: Callable[[], object], *, within_s: float = 600.0) -> None:
        until(condition, within_s=within_s, every_s=0.2, of=self.process, log=self.run.parent / "said")

    def children(self) -> list[str]:
        """Living processes of the run but the supervisor."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                marked = self._mark.encode() in (process / "environ").read_bytes().split(b"\0")
                if marked and int(process.name) != self.process.pid:
                    found.append(f"{process.name}: {(process / 'cmdline').read_bytes()[:200]!r}")
        return found

    def until_gone(self, *, within_s: float = 240.0) -> None:
        left = lambda: "\n".join(self.children())  # noqa: E731
        until(lambda: not left(), within_s=within_s, every_s=0.2, log=left)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self._said.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not Path("/proc/self/environ").exists():
        pytest.skip("finds processes by /proc")
    return tmp_path_factory.mktemp("runs")


def test_a_killed_run_leaves_nobody_and_goes_on(runs: Path) -> None:
    preset = ("--preset", "chess-gpt", "--model", "models/rook-tiny", "--style", "mover-squares")
    sizes = ("--batch-groups", "4", "--group-size", "4", "--nodes", "100")
    evaluated = ("--evaluate-every", "4", "--evaluate-positions", "8")
    short = ("--set", "arena.pairs=1", "--set", "arena.max_plies=12")
    first = Up(runs, *preset, "--max-tokens", "32", *sizes, *evaluated, *short)
    try:
        first.until(lambda: len(first.steps()) >= 2)
        assert len(first.children()) >= 6
        os.kill(first.process.pid, signal.SIGKILL)
        first.until_gone()
    finally:
        first.close()
    done = first.steps()[-1]
    second = Up(runs)
    try:
        second.until(lambda: second.steps()[-1] >= done + 2)
        status = subprocess.run(
            [*ROOKERY, "status", "--runs-dir", str(runs)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert status.returncode == 0, status.stdout + status.stderr
        _ask_the_policy(second)
        second.process.send_signal(signal.SIGINT)
        assert second.process.wait(timeout=120) == 130
        second.until_gone()
    finally:
        second.close()
    archived = [group.id for group in TraceArchive(open_folder(str(second.run / "archive"))).groups(run="r")]
    assert len(archived) == len(set(archived)) >= 4 * second.steps()[-1], "each group once, none left out"
    steps = second.steps()
    assert steps == list(range(1, len(steps) + 1)), "each step once, none left out"
    assert json.loads((second.run / "settings.json").read_text())["batch_groups"] == 4
    trained = tomllib.loads((second.run / "trainer.toml").read_text())["trainer"]
    assert (trained["gradient_checkpointing"], trained["lr"]) == (True, 1e-5), "as the preset says"


def _ask_the_policy(up: Up) -> None:
    """On the viewer's page. Black is to move, so the model sees the board mirrored."""
    probes = json.loads((up.run / "endpoints.json").read_text())["probes"]
    viewer = probes["viewer"].removesuffix("/readyz")
    # A killed run leaves groups, so steps are no sign that the server is ready.
    wait_for(probes["inference"], up.process, log=up.run.parent / "said")
    response = httpx.post(
        f"{viewer}/api/runs/r/ask",
        json={"player": "policy", "style": "mover-squares", "moves": ["e2e4"], "max_tokens": 32},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60.0,
    )
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["verdict"], answer
    if answer["move"]:
        board = chess.Board()
        board.push_uci("e2e4")
        assert board.parse_san(answer["move"]["san"]).uci() == answer["move"]["uci"]
    assert httpx.get(f"{viewer}/api/runs/r").json()["account"]["astray"] == 0


def test_a_run_goes_back_from_a_damaged_version(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of the test before. Its account, groups in flight and served numbers are right afterwards."""
    versions = runs / "r" / "adapters"
    newest = max(int(folder.name.removeprefix("policy-v")) for folder in versions.glob("policy-v*"))
    sound, last = newest - 1, newest + 6
    with (versions / f"policy-v{newest:06d}" / "optimizer.safetensors").open("r+b") as file:
        file.seek(2000)
        file.write(b"rotten")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with monkeypatch.context() as patch:  # the trainer refuses; the others need not start for that
        patch.setattr(plan, "STAGES", (("redis",), ("feed", "trainer")))
        patch.setattr(plan, "_check_together", lambda *_, **__: None)
        damaged = f"policy-v{newest:06d}/optimizer.safetensors is damaged.*--from-version {sound}"
        settings = settle_settings(UpSettings(run="r", runs_dir=runs))
        with pytest.raises(SetupError, match=damaged), Session(settings, Console(quiet=True)) as session:
            session.train()
    second = Up(runs, "--from-version", str(sound), "--steps", str(last))
    try:
        assert second.process.wait(timeout=600) == 0, (runs / "said").read_text()[-3000:]
    finally:
        second.close()
    said = (runs / "said").read_text()
    assert f"goes back to version {sound}, unless it has done so before: later versions" in said
    weights = {
        n: (versions / f"policy-v{n:06d}" / "adapter_model.safetensors").read_bytes()
        for n in range(sound, last + 1)
    }
    assert weights[newest + 1] == weights[sound]
    assert len(set(weights.values())) == len(weights) - 1
    assert second.steps() == [*range(1, newest + 1), *range(newest + 2, last + 1)]
    rows = [json.loads(line) for line in (second.run / "metrics.jsonl").read_text().splitlines()]
    assert all(row["mismatch_mean"] < 1e-5 for row in rows), "every group is of the version it names"
    assert all(row["age_max"] <= 4 for row in rows)
    assert last - 1 - rows[-1]["age_max"] > newest, "the server took the new numbers"
    # Or a later one, if that was no longer served when the arena was ready to ask it.
    assert read_strength(second.run)[-1]["version"] >= last // 4 * 4, "the last one is waited for"
