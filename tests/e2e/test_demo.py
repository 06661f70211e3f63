"""`rookery demo`, cut short: every file it promises, from both ends of a real run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.settings import DemoSettings
from tests.conftest import ROOT
from tests.gpt2 import write_rookworld_model

pytestmark = [
    pytest.mark.redis,
    pytest.mark.stockfish,
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.timeout(900),
]

METRICS = ("legal_rate", "legal_rate_greedy", "reward", "regret_legal", "box_rate")


def test_a_short_demo_leaves_a_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "launcher", "demo", "--runs-dir", str(tmp_path), "--run", "d"]
    command += ["--steps", "2", "--batch-groups", "4", "--nodes", "100", "--seed", "3"]
    command += ["--eval-positions", "12", "--eval-samples", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = tmp_path / "d"
    report = json.loads((run / "report.json").read_text())
    for metric in METRICS:
        assert set(report["metrics"][metric]) >= {"before", "after", "difference"}
    assert (run / "report.html").stat().st_size > 1000
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert len((run / "heldout.jsonl").read_text().splitlines()) == 12
    assert "policy-v000000" in done.stdout
    assert "policy-v000002" in done.stdout


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--preset", "rookworld-mini"], "the task is rookworld"),
        (["--preset", "pychess-ppo"], "a GPT-2 is served in one version"),
    ],
)
def test_what_the_arena_cannot_compare_is_reported_by_its_steps(
    tmp_path: Path, flags: list[str], reason: str
) -> None:
    model = write_rookworld_model(tmp_path / "tiny-gpt2")
    command = [
        sys.executable,
        "-m",
        "launcher",
        "demo",
        "--runs-dir",
        str(tmp_path),
        "--run",
        "d",
        *flags,
    ]
    command += ["--model", str(model), "--steps", "2", "--batch-groups", "4", "--group-size", "2"]
    command += ["--nodes", "100"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert reason in done.stdout
    assert "first 1" in done.stdout
    run = tmp_path / "d"
    report = json.loads((run / "report.json").read_text())
    first, last = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    assert reason in report["not_compared"]
    assert report["metrics"]["reward"] == {"first": first["reward"], "last": last["reward"]}
    assert report["account"]["counts"]["trained"] == 8
    assert report["account"]["astray"] == 0
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_is_bounded() -> None:
    settings = DemoSettings.parse([], prog="rookery demo")
    assert settings.steps is not None
    assert settings.minutes is not None
    assert settings.minutes <= 10
