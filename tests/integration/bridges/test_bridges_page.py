"""docs/bridges.md does what it says: its examples run, its requests get the answers it shows."""

import re
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from statistics import mean

import pytest

from tests.conftest import ROOT
from tests.curl import curls, run_curl

pytestmark = pytest.mark.stockfish

PAGE = ROOT / "docs" / "bridges.md"
CLIENT, TRL, EPISODE, BREVITY = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_client(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CLIENT + EPISODE], check=True, cwd=tmp_path)


def test_urls_alone(reward_url: str) -> None:
    answered = [run_curl(command, {"http://localhost:8080": reward_url}).json() for command in curls(PAGE)]
    assert answered == [0.0, {"rewards": [0.0], "scores": [1.0], "extra_logs": {"legal": [1.0]}}]


def test_the_function_of_a_user() -> None:
    """The reward service runs such functions in test_reward_custom_schemes.py."""
    functions: dict[str, object] = {}
    exec(BREVITY, functions)
    brevity = functions["brevity"]
    assert callable(brevity)
    assert brevity(["x" * 250, "x" * 2000], fen=["", ""], move=["", ""], more=1) == [0.75, 0.0]


@pytest.mark.trainers
def test_trl_learns_legal_moves(questions: Path, tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_bytes(questions.read_bytes())
    (tmp_path / "models").symlink_to(ROOT / "models")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRL], cwd=tmp_path, capture_output=True, text=True, timeout=290
    )
    assert run.returncode == 0, run.stderr[-3000:]
    rates = literal_eval(run.stdout.splitlines()[-1])
    assert len(rates) == 12
    assert mean(map(float, rates[-4:])) > mean(map(float, rates[:4])) + 0.1
