"""Models named by a Hugging Face id: found in its cache, recognised, or said to be missing."""

from pathlib import Path

import pytest

from rookery.config.finetune import SftSettings
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer.finetune.loop import start_run
from services.trainer.model.policies import Gpt2Policy, MergedPolicy, build_policy
from tests.hub import write_snapshot
from tests.unit.trainer.contents import contents
from tests.unit.trainer.gpt2_models import write_gpt2

ID = "distilbert/distilgpt2"


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return write_snapshot(tmp_path / "hub", ID)


def _settings(folder: Path, *flags: str) -> TrainerSettings:
    return TrainerSettings.parse(
        ["--preset", "pychess-ppo", "--run-dir", str(folder), "--device", "cpu", *flags], prog="trainer"
    )


def test_a_gpt2_is_recognised_by_its_id(snapshot: Path, tmp_path: Path) -> None:
    write_gpt2(snapshot)
    (snapshot / "vocab.json").write_text("{}")
    policy = build_policy(_settings(tmp_path))
    assert type(policy) is MergedPolicy
    assert policy.value_head is not None
    assert policy.base_model == ID
    files = contents(policy.version_files())
    assert {"config.json", "model.safetensors", "adapter_model.safetensors", "vocab.json"} < set(files)
    assert files["config.json"] == (snapshot / "config.json").read_bytes()
    assert type(build_policy(_settings(tmp_path, "--objective", "grpo"))) is MergedPolicy
    whole = TrainerSettings(model=Path(ID), run_dir=tmp_path, lora_rank=0, device="cpu")
    assert type(build_policy(whole)) is Gpt2Policy


def test_all_weights_of_another_model_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    whole = TrainerSettings(model=tiny_model, run_dir=tmp_path, lora_rank=0, device="cpu")
    with pytest.raises(SetupError, match=f"lora_rank=0 trains every weight of a GPT-2, and {tiny_model}"):
        build_policy(whole)


def test_a_model_that_is_not_here_says_how_to_fetch_it(snapshot: Path, tmp_path: Path) -> None:
    said = rf"no model '{ID}' \(--model\): .*hf download {ID}"
    with pytest.raises(SetupError, match=said):
        build_policy(_settings(tmp_path))
    sft = SftSettings.parse(["--preset", "pychess-ppo", "--data", "d", "--out", str(tmp_path)], prog="sft")
    with pytest.raises(SetupError, match=said):
        start_run(sft)


def test_a_preset_of_sft_finds_its_model_too(snapshot: Path, tmp_path: Path) -> None:
    write_gpt2(snapshot)
    sft = SftSettings.parse(["--preset", "pychess-ppo", "--data", "d", "--out", str(tmp_path)], prog="sft")
    assert start_run(sft)[0] == snapshot
