"""The pipelines besides pychess at tiny size, every part real, from the model to the report."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import A_WHOLE_RUN, ROOT
from tests.gpt2 import teach, write_rookworld_model

pytestmark = [pytest.mark.nightly, *A_WHOLE_RUN, pytest.mark.timeout(900)]

STEPS = 1
SETTINGS = {"batch-groups": 4, "group-size": 2, "nodes": 100, "steps": STEPS, "positions": 6}
ROOKWORLD: dict[str, object] = {"policy-tokens": 72, "state-tokens": 48, "puzzles": 2}
PIPELINES: dict[str, dict[str, object]] = {
    "chess-gpt": {
        "style": "mover-squares", "max-tokens": 24, "sections": "positions,reasoning",
        "annotation-count": 16, "annotation-nodes": 500, "sft-steps": 2,
    },
    "rookworld-full": {"max-positions": 8, **ROOKWORLD},
    "rookworld-mini": {"devices": "cpu,cpu", **ROOKWORLD},
}  # fmt: skip


def write_patient_model(folder: Path) -> Path:
    """rook-tiny with room for annotations, of whose words it knows none."""
    shutil.copytree(ROOT / "models" / "rook-tiny", folder)
    limits = {"config.json": "max_position_embeddings", "tokenizer_config.json": "model_max_length"}
    for file, key in limits.items():
        values = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(values | {key: 2048}))
    return folder


@pytest.mark.parametrize("name", PIPELINES)
def test_from_the_model_to_the_report(name: str, tmp_path: Path) -> None:
    if name == "chess-gpt":
        model = write_patient_model(tmp_path / "rook-tiny")
    else:
        model = teach(write_rookworld_model(tmp_path / "tiny-gpt2"), steps=200)
    out = tmp_path / "out"
    settings = {"model": model, **SETTINGS, **PIPELINES[name]}
    flags = [f"--set={key}={value}" for key, value in settings.items()]
    file = f"pipelines/{name}.toml"
    argv = [sys.executable, "-m", "launcher", "pipeline", "run", file, "--out", str(out), *flags]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    [metrics] = out.glob("?-rl/grpo/metrics.jsonl")
    assert len(metrics.read_text().splitlines()) == STEPS
    [written] = out.glob("?-evaluation/report.json")
    report = json.loads(written.read_text())
    assert list(report["players"]) == ["base", *(["sft"] if name == "chess-gpt" else []), "rl"]
    positions = report["sections"]["positions"]
    if name == "chess-gpt":
        assert json.loads((out / "3-rl/grpo/settings.json").read_text())["thinking"] is True
        assert "reasoning" in report["sections"]
        assert set(positions["metrics"]["legal_rate"]) > {"base", "rl"}
    else:
        for lines in ("P_lines", "A_lines"):
            assert set(positions[lines]["grade"]) == {"base", "rl", "well-formed guess"}
            assert positions[lines]["format"]["well-formed guess"]["mean"] == 1.0
        assert "puzzles/mates_in_1" in report["sections"]
