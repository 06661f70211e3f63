"""`rookery demo`, cut short: every file it promises, from both ends of a real run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.settings import DemoSettings
from tests.conftest import ROOT
from tests.gpt2 import teach, write_rookworld_model

pytestmark = [
    pytest.mark.redis,
    pytest.mark.stockfish,
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.timeout(900),
]

FIRST, LAST = "policy-v000000", "policy-v000002"
REFERENCES = {"random legal move", "engine's best"}
METRICS = ("legal_rate", "legal_rate_greedy", "reward", "box_rate", "action_accuracy", "legal_pass@2")


def run_demo(folder: Path, *flags: str) -> dict[str, Any]:
    """Runs two steps of a demo and returns the content of its report.json."""
    command = [sys.executable, "-m", "launcher", "demo", "--runs-dir", str(folder), "--run", "d", *flags]
    command += ["--steps", "2", "--batch-groups", "4", "--nodes", "100"]
    command += ["--eval-positions", "12", "--eval-samples", "2", "--eval-pairs", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = folder / "d"
    assert FIRST in done.stdout
    assert LAST in done.stdout
    assert (run / "report.html").stat().st_size > 1000
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert len((run / "heldout.jsonl").read_text().splitlines()) == 12
    report: dict[str, Any] = json.loads((run / "report.json").read_text())
    assert list(report["players"]) == [FIRST, LAST]
    return report


def test_a_short_demo_leaves_a_report(tmp_path: Path) -> None:
    report = run_demo(tmp_path, "--seed", "3")
    metrics = report["sections"]["positions"]["metrics"]
    for metric in METRICS:
        assert set(metrics[metric]) == {FIRST, LAST, *REFERENCES}
        assert metrics[metric][LAST]["difference"]["ci95"]
    assert set(report["sections"]["positions"]["pieces"]["pawn"]) == {FIRST, LAST, *REFERENCES}
    assert set(report["sections"]["reasoning"]["metrics"]["distinct_candidates"]) == {FIRST, LAST}
    assert {"matches-forfeit", "matches-random"} < set(report["sections"])


def test_gpt2_with_all_weights_is_evaluated_on_both_kinds_of_lines(tmp_path: Path) -> None:
    """One version is served at a time: the second is asked when the first is gone."""
    model = teach(write_rookworld_model(tmp_path / "tiny-gpt2"), steps=200)
    report = run_demo(
        tmp_path,
        "--preset",
        "rookworld-mini",
        "--model",
        str(model),
        "--group-size",
        "2",
        "--set",
        "trainer.lr=3e-3",
    )
    positions = report["sections"]["positions"]
    for table in ("P_lines", "A_lines"):
        assert set(positions[table]["format"]) == {FIRST, LAST, "well-formed guess"}
        assert positions[table]["format"]["well-formed guess"]["mean"] == 1.0
        assert positions[table]["format"][FIRST]["mean"] > 0, "the taught model writes the form now and then"
    assert set(positions["A_lines"]) == {"format", "fen", "reward", "terminated", "truncated", "grade"}
    assert set(positions["P_lines"]) == {"format", "best", "candidates", "evaluations", "grade"}
    answers = (tmp_path / "d" / "answers.jsonl").read_text().splitlines()
    asked = [json.loads(line) for line in answers]
    texts = {
        name: sorted(answer["text"] for line in asked if line["player"] == name for answer in line["answers"])
        for name in (FIRST, LAST)
    }
    assert len(texts[FIRST]) == len(texts[LAST]) == 12 * (1 + 2 + 1 + 1)  # greedy, sampled, mirrored, A:
    assert texts[FIRST] != texts[LAST], "each was asked while its own weights were served"


def test_the_demo_is_bounded() -> None:
    settings = DemoSettings.parse([], prog="rookery demo")
    assert settings.steps is not None
    assert settings.minutes is not None
    assert settings.minutes <= 10
    assert (settings.preset, settings.model, settings.style) == (
        "rook-small",
        "models/rook-small",
        "mover-twice",
    )
    other = DemoSettings.parse(["--model", "models/rook-tiny"], prog="rookery demo")
    assert (other.preset, other.style) == (None, "mover-squares"), "its settings are for its own model"
