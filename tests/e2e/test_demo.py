"""`rookery demo`, cut short: every file it promises, from both ends of a real run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.settings import DemoSettings
from tests.conftest import ROOT

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


def test_the_demo_is_bounded() -> None:
    settings = DemoSettings.parse([], prog="rookery demo")
    assert settings.steps is not None
    assert settings.minutes is not None
    assert settings.minutes <= 10
