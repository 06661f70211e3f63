"""The pipelines without SFT at tiny size, every part real: `up`, then `evaluate`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.gpt2 import teach, write_rookworld_model

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.redis,
    pytest.mark.stockfish,
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.timeout(900),
]

STEPS = 1
SETTINGS = {"batch-groups": 4, "group-size": 2, "nodes": 100, "steps": STEPS, "positions": 6}
ROOKWORLD = {"policy-tokens": 72, "state-tokens": 48, "puzzles": 2}
PIPELINES = {
    "chess-gpt": {"style": "mover-squares", "max-tokens": 24, "sections": "positions,reasoning"},
    "rookworld-full": {"max-positions": 8, **ROOKWORLD},
    "rookworld-mini": ROOKWORLD,
}


@pytest.mark.parametrize("name", PIPELINES)
def test_from_the_model_to_the_report(name: str, tmp_path: Path) -> None:
    model: Path = ROOT / "models" / "rook-tiny"
    if name != "chess-gpt":
        model = teach(write_rookworld_model(tmp_path / "tiny-gpt2"), steps=200)
    out = tmp_path / "out"
    settings = {"model": model, **SETTINGS, **PIPELINES[name]}
    flags = [f"--set={key}={value}" for key, value in settings.items()]
    file = f"pipelines/{name}.toml"
    argv = [sys.executable, "-m", "launcher", "pipeline", "run", file, "--out", str(out), *flags]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    steps = (out / "1-rl/grpo/metrics.jsonl").read_text().splitlines()
    assert len(steps) == STEPS
    report = json.loads((out / "2-evaluation/report.json").read_text())
    assert list(report["players"]) == ["base", "rl"]
    positions = report["sections"]["positions"]
    if name == "chess-gpt":
        assert "reasoning" in report["sections"]
        assert set(positions["metrics"]["legal_rate"]) > {"base", "rl"}
    else:
        for lines in ("P_lines", "A_lines"):
            assert set(positions[lines]["grade"]) == {"base", "rl", "well-formed guess"}
            assert positions[lines]["format"]["well-formed guess"]["mean"] == 1.0
        assert "puzzles/mates_in_1" in report["sections"]
