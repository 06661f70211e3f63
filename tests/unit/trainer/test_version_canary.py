"""The canary that the trainer writes into each version, against the model's own log-probabilities."""

from pathlib import Path

import pytest
import torch

from bench.noise_adapter import write_adapter
from rookery.canary import CANARY_FILE, Canary
from rookery.config.trainer import TrainerSettings
from services.trainer.distributed.process_group import World
from services.trainer.model.policies import build_policy
from services.trainer.training.policy_trainer import PolicyTrainer


def _trainer(model: Path, folder: Path, **changed: object) -> PolicyTrainer:
    settings = TrainerSettings(model=str(model), run_dir=folder, device="cpu", precision="fp32", **changed)
    return PolicyTrainer(settings, build_policy(settings), World())


def _canary(trainer: PolicyTrainer) -> Canary:
    return Canary.model_validate_json(trainer.files()[CANARY_FILE])


def test_version_0_answers_as_the_base_and_others_as_the_model_does(tiny_model: Path, tmp_path: Path) -> None:
    adapter = Path(write_adapter(tmp_path / "adapter", tiny_model, version=1, rank=16, scale=0.1).path)
    trainer = _trainer(tiny_model, tmp_path)
    zero = _canary(trainer)
    trainer.load(adapter)
    moved = _canary(trainer)
    resumed = _trainer(tiny_model, tmp_path)
    resumed.load(adapter)

    assert zero.logprobs == zero.base
    assert _canary(resumed) == moved
    model, rows = trainer.policy.model, zip(moved.beginnings, moved.tokens, moved.logprobs, strict=True)
    for ids, tokens, logprobs in rows:
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        assert logits.log_softmax(-1)[tokens].tolist() == pytest.approx(logprobs, abs=2e-5)
    for before, after in zip(moved.base, moved.logprobs, strict=True):
        assert max(abs(a - b) for a, b in zip(before, after, strict=True)) > 0.01
        assert len(before) == 8


def test_a_model_without_a_fast_tokenizer_has_none(tiny_model: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in tiny_model.iterdir():
        if path.name != "tokenizer.json":
            (bare / path.name).symlink_to(path)
    assert CANARY_FILE not in _trainer(bare, tmp_path).files()
