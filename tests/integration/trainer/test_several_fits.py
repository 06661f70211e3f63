"""sft, dpo and reward-model in two processes on gloo: what one process makes, in one set of files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from services.trainer.finetune import dpo, sft  # noqa: E402
from services.trainer.reward_model import training as reward_model  # noqa: E402
from services.trainer.settings import SftSettings  # noqa: E402
from services.trainer.tiny import build_tiny  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.integration.trainer.several_fits import dpo_settings, reward_model_settings  # noqa: E402
from tests.unit.trainer.preferences import write_pairs  # noqa: E402

SCRIPTS = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
NOT_LEARNING = {"step_s", "tokens_per_s", "tokens", "resident_mib", "resident_peak_mib"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fits")
    build_tiny(folder / "tiny", seed=3, hidden_size=32, layers=2, intermediate_size=64)
    write_pairs(folder / "pairs.jsonl", count=60, games=20)
    return folder


def rows(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def assert_same(one: Path, two: Path) -> None:
    """The metrics and the weights are the same, except for rounding."""
    alone, both = rows(one), rows(two)
    assert [row["step"] for row in both] == [row["step"] for row in alone]
    assert alone[-1].keys() == both[-1].keys()
    for left, right in zip(alone, both, strict=True):
        for name in left.keys() - NOT_LEARNING:
            assert right[name] == pytest.approx(left[name], rel=1e-4, abs=1e-6), name
    weights, others = (load_file(out / "model" / "model.safetensors") for out in (one, two))
    assert weights.keys() == others.keys()
    moved = sum((others[name] - weight).double().square().sum() for name, weight in weights.items()) ** 0.5
    assert moved < 1e-4 * sum(weight.double().square().sum() for weight in weights.values()) ** 0.5
    assert not list(two.glob("checkpoint*"))


def test_dpo_and_reward_model(folder: Path) -> None:
    script = Path(__file__).with_name("several_fits.py")
    command = [SCRIPTS / "torchrun", "--standalone", "--nproc-per-node", "2", script, folder]
    subprocess.run(command, check=True, timeout=300, env=ENVIRONMENT, cwd=ROOT)
    dpo.run(dpo_settings(folder, folder / "alone" / "dpo"))
    reward_model.run(reward_model_settings(folder, folder / "alone" / "reward-model"))
    for name in ("dpo", "reward-model"):
        assert_same(folder / "alone" / name, folder / "all" / name)
    reports = [
        json.loads((folder / by / "reward-model" / "report.json").read_text()) for by in ("alone", "all")
    ]
    assert reports[1]["pairs"] == reports[0]["pairs"]


def test_sft_is_stopped_and_resumed_by_accelerate(folder: Path) -> None:
    out, data = folder / "all" / "sft", folder / "pairs.jsonl"
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    chats = folder / "chats.jsonl"
    chats.write_text("".join(json.dumps({"messages": r["prompt"] + r["chosen"]}) + "\n" for r in lines))
    flags = {
        "batch-size": 9, "steps": 80, "lr": 1e-3, "warmup-steps": 2, "threads": 1, "device": "cpu",
        "eval-data": chats, "eval-examples": 20, "eval-every": 40, "save-dtype": "float32",
    }  # fmt: skip
    said = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    command = [
        SCRIPTS / "accelerate", "launch", "--config_file", "deploy/accelerate/gpus.yaml",
        "--num_processes", "2", "--main_process_port", "0", "-m", "services.trainer", "sft",
        "--model", folder / "tiny", "--data", chats, "--out", out, "--no-bf16", *said,
    ]  # fmt: skip
    with (folder / "sft.log").open("wb") as log:
        first = subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT, stdout=log, stderr=log)
        while first.poll() is None and not ((out / "metrics.jsonl").exists() and len(rows(out)) > 4):
            time.sleep(0.1)
        first.send_signal(signal.SIGTERM)
        assert first.wait(120) != 0
        step = json.loads((out / "checkpoint" / "state.json").read_text())["step"]
        assert 4 < step < 80
        assert len(rows(out)) == step
        subprocess.run(command, check=True, timeout=300, env=ENVIRONMENT, cwd=ROOT, stdout=log, stderr=log)
    values = {name.replace("-", "_"): value for name, value in flags.items()}
    alone = SftSettings(model=folder / "tiny", data=chats, out=folder / "alone" / "sft", bf16=False, **values)  # type: ignore[arg-type]
    sft.run(alone)
    assert_same(folder / "alone" / "sft", out)
