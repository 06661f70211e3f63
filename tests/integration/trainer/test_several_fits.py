"""sft, dpo and reward-model in two processes on gloo: what one process makes, in one set of files."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from services.trainer.finetune import dpo, sft
from services.trainer.reward_model import training as reward_model
from services.trainer.tiny import build_tiny
from tests.conftest import ROOT
from tests.integration.trainer.several_fits import SFT, dpo_settings, reward_model_settings, sft_settings
from tests.processes import ACCELERATE_LAUNCH
from tests.unit.trainer.preferences import write_pairs
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

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


@pytest.fixture(scope="module")
def stopped_at(folder: Path) -> int:
    """The step at which sft, begun with a list of devices, was told to stop."""
    out, chats = folder / "all" / "sft", folder / "chats.jsonl"
    lines = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
    chats.write_text("".join(json.dumps({"messages": r["prompt"] + r["chosen"]}) + "\n" for r in lines))
    both = SFT | {"device": "cpu,cpu"}
    flags = [word for name, value in both.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [
        sys.executable, "-m", "launcher", "sft", "--model", folder / "tiny", "--data", chats,
        "--eval-data", chats, "--out", out, "--precision", "fp32", *flags,
    ]  # fmt: skip
    log = folder / "sft.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
    until(lambda: (out / "metrics.jsonl").exists() and len(rows(out)) > 4, of=process, log=log, within_s=240)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) != 0
    step: int = json.loads((out / "checkpoint" / "state.json").read_text())["step"]
    assert len(rows(out)) == step
    return step


@pytest.fixture(scope="module", autouse=True)
def _resumed(folder: Path, stopped_at: int) -> None:
    """Everything in one start: most of it goes by importing torch."""
    script = Path(__file__).with_name("several_fits.py")
    command = [
        *ACCELERATE_LAUNCH, "--config_file", "deploy/accelerate/gpus.yaml",
        "--num_processes", "2", "--main_process_port", "0", script, folder,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=300, cwd=ROOT)


def test_dpo_and_reward_model(folder: Path) -> None:
    dpo.run(dpo_settings(folder, folder / "alone" / "dpo"))
    reward_model.run(reward_model_settings(folder, folder / "alone" / "reward-model"))
    for name in ("dpo", "reward-model"):
        assert_same(folder / "alone" / name, folder / "all" / name)
    reports = [
        json.loads((folder / by / "reward-model" / "report.json").read_text()) for by in ("alone", "all")
    ]
    assert reports[1]["pairs"] == reports[0]["pairs"]


def test_sft_is_stopped_and_resumed(folder: Path, stopped_at: int) -> None:
    assert 4 < stopped_at < SFT["steps"]
    sft.run(sft_settings(folder, folder / "alone" / "sft"))
    assert_same(folder / "alone" / "sft", folder / "all" / "sft")
