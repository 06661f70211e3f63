"""pipelines/pychess.toml from games to the report with a tiny GPT-2, every part real."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import A_WHOLE_RUN, ROOT
from tests.gpt2 import teach, write_rookworld_model

pytestmark = [*A_WHOLE_RUN, pytest.mark.timeout(1200)]

SETTINGS = {
    "sft-examples": 200, "sft-steps": 10, "pair-count": 8, "nodes": 200, "max-tokens": 12,
    "reward-model-steps": 3, "rl-steps": 2, "positions": 6, "sections": "positions",
}  # fmt: skip


@pytest.fixture(scope="module")
def argv(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pychess")
    model = teach(write_rookworld_model(folder / "tiny-gpt2", positions=640), steps=20)
    flags = [f"--set={name}={value}" for name, value in {"model": model, **SETTINGS}.items()]
    return [
        sys.executable, "-m", "launcher", "pipeline", "run", "pipelines/pychess.toml", "--out",
        str(folder / "out"), *flags,
    ]  # fmt: skip


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_from_games_to_the_report(argv: list[str]) -> None:
    said = run(argv)
    out = Path(argv[argv.index("--out") + 1])
    assert [line for line in said.splitlines() if ": done after" in line][-1].startswith("6/6 evaluation")
    pairs = _json(out / "3-pairs/manifest.json")
    assert pairs["pairs"] == SETTINGS["pair-count"]
    reward_model = _json(out / "4-reward-model/model/reward_model.json")
    steps = [json.loads(line) for line in (out / "5-rl/ppo/metrics.jsonl").read_text().splitlines()]
    assert len(steps) == SETTINGS["rl-steps"]
    assert all("value_loss" in step for step in steps), "PPO has a critic"
    assert reward_model["files"]
    report = _json(out / "6-evaluation/report.json")
    assert list(report["players"]) == ["base", "sft", "rl"]
    assert {player["style"] for player in report["players"].values()} == {"game-san"}
    assert {player["max_tokens"] for player in report["players"].values()} == {SETTINGS["max-tokens"]}
    lines = run(argv).splitlines()
    assert lines == [f"{line.split(':')[0]}: up to date" for line in lines]
    assert len(lines) == 6
