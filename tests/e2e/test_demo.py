"""`rookery demo`, cut short: every file it promises, from both ends of a real run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.settings import DemoSettings
from tests.conftest import A_WHOLE_RUN, ROOT

pytestmark = [*A_WHOLE_RUN, pytest.mark.timeout(900)]

FIRST, LAST = "policy-v000000", "policy-v000002"
REFERENCES = {"random legal move", "engine's best"}
METRICS = ("legal_rate", "legal_rate_greedy", "reward", "box_rate", "action_accuracy", "legal_pass@2")


def test_a_short_demo_leaves_a_report(tmp_path: Path) -> None:
    """One of a GPT-2 with all weights: test_rookworld.py."""
    command = [sys.executable, "-m", "launcher", "demo", "--runs-dir", str(tmp_path), "--run", "d"]
    command += ["--seed", "3", "--steps", "2", "--batch-groups", "4", "--nodes", "100"]
    command += ["--eval-positions", "12", "--eval-samples", "2", "--eval-pairs", "1"]
    # In the precision that users of this machine get.
    environment = {name: value for name, value in os.environ.items() if name != "TRAINER_PRECISION"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=850, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = tmp_path / "d"
    assert FIRST in done.stdout
    assert LAST in done.stdout
    assert (run / "report.html").stat().st_size > 1000
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < step["mismatch_mean"] < 0.02 for step in steps), "bfloat16 rounds; other weights do more"
    assert len((run / "heldout.jsonl").read_text().splitlines()) == 12
    report = json.loads((run / "report.json").read_text())
    assert list(report["players"]) == [FIRST, LAST]
    metrics = report["sections"]["positions"]["metrics"]
    for metric in METRICS:
        assert set(metrics[metric]) == {FIRST, LAST, *REFERENCES}
        assert metrics[metric][LAST]["difference"]["ci95"]
    assert set(report["sections"]["positions"]["pieces"]["pawn"]) == {FIRST, LAST, *REFERENCES}
    assert set(report["sections"]["reasoning"]["metrics"]["distinct_candidates"]) == {FIRST, LAST}
    assert set(report["sections"]["matches"]["encounters"]["strict_elo"])
    assert set(report["sections"]["puzzles/mates_in_1"]["metrics"]["solved"]) == {FIRST, LAST}
    # As after Ctrl-C in the evaluation. The trainer ends before the server is ready.
    (run / "report.json").unlink()
    again = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-3000:]
    assert json.loads((run / "report.json").read_text())["sections"] == report["sections"]


def test_the_demo_is_bounded() -> None:
    settings = DemoSettings.parse([], prog="rookery demo")
    assert settings.steps is not None
    assert settings.minutes is not None
    assert settings.minutes <= 10
    assert (settings.preset, settings.model, settings.style) == (
        "rook-small",
        "models/rook-small-sft",
        "mover-twice",
    )
    other = DemoSettings.parse(["--model", "models/rook-tiny"], prog="rookery demo")
    assert (other.preset, other.style) == (None, None), "its settings are for its own model"
