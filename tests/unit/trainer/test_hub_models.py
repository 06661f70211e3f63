"""Models named by a Hugging Face id: found in its cache, recognised, or said to be missing."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rookery.config.finetune import SftSettings
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer.finetune.loop import start_run
from services.trainer.model.policies import Gpt2Policy, MergedPolicy, WholePolicy, build_policy
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


def test_all_weights_of_another_model_are_saved_as_a_model(tiny_model: Path, tmp_path: Path) -> None:
    policy = build_policy(TrainerSettings(model=tiny_model, run_dir=tmp_path, lora_rank=0, device="cpu"))
    assert type(policy) is WholePolicy
    with torch.no_grad():
        for weight in policy.parameters:
            weight += 0.01
    version = tmp_path / "version"
    version.mkdir()
    for name, content in contents(policy.version_files()).items():
        (version / name).write_bytes(content)
    loaded = AutoModelForCausalLM.from_pretrained(version, dtype=torch.float32)
    for (name, ours), theirs in zip(policy.model.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    other = build_policy(TrainerSettings(model=tiny_model, run_dir=tmp_path, lora_rank=0, device="cpu"))
    other.load_version(version)
    assert all(map(torch.equal, policy.parameters, other.parameters))


def test_weights_that_transformers_renames_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "renamed"
    shutil.copytree(tiny_model, folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name.removeprefix("model."): w for name, w in weights.items()}, folder / "model.safetensors")
    with pytest.raises(SetupError, match=r"--lora-rank 0: the files of .* do not have"):
        build_policy(TrainerSettings(model=folder, run_dir=tmp_path, lora_rank=0, device="cpu"))


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
