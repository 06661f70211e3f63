"""Mixtures of experts, models that read more than text, and models with code of their own."""

import ast
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery.canary import CANARY_FILE
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer.distributed.process_group import World
from services.trainer.finetune.model import load_chat_tokenizer, load_sequence_classifier
from services.trainer.model.base_model import load_causal_lm
from services.trainer.model.policy import Policy
from services.trainer.records.flops import count_weights
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.training.step import RunningState
from tests.conftest import ROOT
from tests.unit.trainer.contents import contents
from tests.unit.trainer.groups import make_group
from tests.unit.trainer.other_models import write_mixture, write_model_with_code, write_reader_of_images

LOADERS: dict[str, Callable[[Path], Any]] = {
    "policy": lambda path: load_causal_lm(path, dtype=torch.float32),
    "reward model": lambda path: load_sequence_classifier(path, dtype=torch.float32, pad_id=0),
    "tokenizer": load_chat_tokenizer,
}


def policy(model: Path, **given: Any) -> Policy:
    return Policy(TrainerSettings(model=model, run_dir=Path(), device="cpu", lora_rank=2, **given))


@pytest.mark.parametrize("loader", LOADERS)
def test_code_of_a_model_is_never_run(
    loader: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model_with_code(tmp_path / "model", tiny_model, marker=tmp_path / "was_run")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(SetupError, match=r"model' \(--model\): it needs code of its own"):
        LOADERS[loader](folder)
    assert not (tmp_path / "was_run").exists()


def test_no_class_of_transformers_may_ask_whether_to_run_code() -> None:
    parts = ("bench", "bridges", "launcher", "rookery", "scripts", "services")
    calls = [
        ast.unparse(node)
        for part in parts
        for path in (ROOT / part).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and re.match(r"Auto\w+\.from_", ast.unparse(node.func))
    ]
    assert len(calls) > 4
    assert [call for call in calls if "trust_remote_code=False" not in call] == []


@pytest.mark.parametrize("loader", ["policy", "reward model"])
def test_a_model_that_reads_more_than_text_is_refused(loader: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = write_reader_of_images(tmp_path / "gemma", tiny_model)
    with pytest.raises(SetupError, match=r"gemma' \(--model\) is a Gemma3For\w+, which reads more than text"):
        LOADERS[loader](folder)


def test_the_experts_of_a_mixture_get_no_adapter(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mixture = write_mixture(tmp_path / "mixture", tiny_model)
    with caplog.at_level(logging.WARNING):
        adapted = policy(mixture)
    skipped = "model.layers.N.mlp.experts.down_proj, model.layers.N.mlp.experts.gate_up_proj, 12288 weights"
    assert f"the experts of a Qwen3MoeForCausalLM get no adapter: {skipped}" in caplog.text
    config = json.loads(contents(adapted.version_files())["adapter_config.json"])
    assert config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert not config["target_parameters"]
    attention, router, experts = 2 * 32 * 32 + 2 * 32 * 16, 4 * 32, 2 * 3 * 32 * 16
    assert count_weights(adapted.model).frozen == 2 * (attention + router + experts)

    for targets, said in {
        "gate": "a Qwen3MoeTopKRouter is not a linear layer",
        "mlp.experts": "a Qwen3MoeExperts is not a linear layer",
    }.items():
        with pytest.raises(SetupError, match=f"lora_targets={targets}: {said}"):
            policy(mixture, lora_targets=targets)
    mixed = write_mixture(tmp_path / "mixed", tiny_model, mlp_only_layers=[0])
    with pytest.raises(SetupError, match=r"to the experts of .*: use lora_targets=k_proj,o_proj,q_proj"):
        policy(mixed)
    with pytest.raises(SetupError, match="lora_targets=q_proj,up_proj: Cannot convert"):
        policy(mixed, lora_targets="q_proj,up_proj")


@pytest.mark.parametrize("kind", ["Qwen3Moe", "Mixtral"])
def test_the_attention_of_a_mixture_is_trained(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    """Each token's routing is its own: the loss is the same in one pass and in several."""
    mixture = write_mixture(tmp_path / kind, tiny_model, kind=kind)
    groups = [make_group(number, prompt_length=5 + number) for number in range(4)]
    losses = []
    for tokens in (4096, 1):
        settings = TrainerSettings(
            model=mixture,
            run_dir=tmp_path,
            device="cpu",
            lora_rank=2,
            micro_batch_tokens=tokens,
            warmup_steps=0,
        )
        trainer = PolicyTrainer(settings, Policy(settings), World())
        before = [parameter.clone() for parameter in trainer.policy.parameters]
        stats = trainer.train_step(groups, step=0, state=RunningState())
        assert any(not torch.equal(a, b) for a, b in zip(before, trainer.policy.parameters, strict=True))
        assert CANARY_FILE in trainer.files()
        losses.append(stats.losses["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
