"""Sequences longer than the model are refused, in one place for all that trains."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import LlamaConfig, Qwen3Config

from rookery.config.finetune import SftSettings
from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.errors import SetupError
from services.trainer import autobatch
from services.trainer.model.base_model import check_group_length, max_positions
from services.trainer.model.policies import build_policy
from services.trainer.records.profile import FILE
from tests.unit.trainer.gpt2_models import write_gpt2
from tests.unit.trainer.groups import make_group


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 64 positions."""
    return write_gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (Qwen3Config(max_position_embeddings=384), 384),
        # As Qwen3's model card has it lengthened.
        (
            Qwen3Config(
                max_position_embeddings=40960,
                rope_parameters={
                    "rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6,
                    "original_max_position_embeddings": 32768,
                },
            ),
            131072,
        ),
        # Llama 3.1's says what it reaches already.
        (
            LlamaConfig(
                max_position_embeddings=131072,
                rope_parameters={
                    "rope_type": "llama3", "factor": 32.0, "rope_theta": 5e5, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
                },
            ),
            131072,
        ),
    ],
    ids=["plain", "yarn", "llama3"],
)  # fmt: skip
def test_the_config_says_how_many(config: Any, most: int) -> None:
    assert max_positions(config) == most


def test_a_group_that_is_too_long_is_named(gpt2: Path) -> None:
    settings = TrainerSettings(model=gpt2, run_dir=Path("nowhere"), device="cpu", lora_rank=0)
    model = build_policy(settings).model
    check_group_length(model, make_group(0, prompt_length=9))
    with pytest.raises(SetupError, match=r"group group-1, a prompt of 63 .* the model has 64 positions"):
        check_group_length(model, make_group(1, prompt_length=63))


@pytest.mark.parametrize(
    ("model", "rank", "prompt", "said"),
    [
        (
            "gpt2",
            0,
            128,
            r"--prompt-tokens and --completion-tokens: 256 tokens, but the model has 64 positions",
        ),
        ("tiny", 2, 100_000, r"100,128 tokens, but the model has 384 positions"),
    ],
)
def test_autobatch_probes_nothing_longer(
    model: str, rank: int, prompt: int, said: str, gpt2: Path, tiny_model: Path, tmp_path: Path
) -> None:
    settings = AutobatchSettings(
        model={"gpt2": gpt2, "tiny": tiny_model}[model],
        run_dir=tmp_path, device="cpu", lora_rank=rank, prompt_tokens=prompt,
    )  # fmt: skip
    with pytest.raises(SetupError, match=said):
        autobatch.run(settings, Console())


def test_the_trainers_own_search_keeps_within_the_model(gpt2: Path, tmp_path: Path) -> None:
    settings = TrainerSettings(
        model=gpt2, run_dir=tmp_path, device="cpu", lora_rank=0, micro_batch_tokens="auto", batch_groups=2
    )
    autobatch.resolve_micro_batch_tokens(settings, build_policy(settings))
    asked = json.loads((tmp_path / FILE).read_text())["asked"]
    assert int(asked["prompt_tokens"]) + int(asked["completion_tokens"]) == 64


def test_fitting_takes_no_longer_examples(gpt2: Path, tmp_path: Path) -> None:
    from services.trainer.finetune.model import prepare_model
    from services.trainer.model.base_model import load_causal_lm

    model = load_causal_lm(gpt2, dtype=torch.float32)
    settings = SftSettings(model=gpt2, data=tmp_path, out=tmp_path, device="cpu")
    with pytest.raises(SetupError, match="--max-length 384: 384 tokens, but the model has 64 positions"):
        prepare_model(model, settings)
    assert prepare_model(model, settings.model_copy(update={"max_length": 64})) is model
