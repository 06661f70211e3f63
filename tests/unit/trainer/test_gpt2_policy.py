"""All weights of a GPT-2 as the policy: the same rows, the same objectives, a base that stays."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery.config.trainer import TrainerSettings
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import Row, prepare_batch
from services.trainer.model.head import WithGradient
from services.trainer.model.policies import Gpt2Policy, MergedPolicy, build_policy
from services.trainer.training import optimizer as adam
from services.trainer.training.step import RunningState, train_step
from tests.unit.trainer.contents import contents
from tests.unit.trainer.gpt2_models import write_gpt2
from tests.unit.trainer.groups import make_group


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_gpt2(tmp_path_factory.mktemp("gpt2"))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def settings(folder: Path, **given: Any) -> TrainerSettings:
    given = {"lora_rank": 0, "device": "cpu", "row_tokens": 256, **given}
    return TrainerSettings(model=folder, run_dir=Path("nowhere"), **given)


def rows(folder: Path) -> list[Row]:
    groups = [make_group(number, prompt_length=5 + number) for number in range(6)]
    return list(prepare_batch(groups, version=1, settings=settings(folder), averages=None).rows)


def test_the_settings_choose_it(folder: Path) -> None:
    assert type(build_policy(settings(folder))) is Gpt2Policy
    assert type(build_policy(settings(folder, lora_rank=4, lora_targets="c_attn,c_proj"))) is MergedPolicy
    critic = build_policy(settings(folder, objective="ppo"))
    assert type(critic) is Gpt2Policy
    assert critic.value_head is not None
    with pytest.raises(ValueError, match="keep=3: at least 8 adapters"):
        settings(folder, lora_rank=4, keep=3)
    assert settings(folder, keep=3).keep == 3


@pytest.mark.parametrize("lora", [0, 4], ids=["whole", "adapter over transformers"])
def test_a_shared_prompt_gives_the_logprobs_of_each_sequence_alone(folder: Path, lora: int) -> None:
    from transformers import GPT2LMHeadModel

    policy = build_policy(settings(folder, lora_rank=lora, lora_targets="c_attn,c_proj"))
    other: Any = policy.model if lora else GPT2LMHeadModel.from_pretrained(folder).eval()
    with torch.no_grad():
        if lora:
            for weight in policy.parameters:
                weight.normal_(std=0.1)
        shared = policy.score(collate(rows(folder))).logprobs_N
        alone = []
        for row in rows(folder):
            for completion in row.completions:
                ids = torch.tensor([row.prompt_ids + completion.token_ids])
                logs = other(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].log_softmax(-1)
                alone.append(logs.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0])
    assert torch.allclose(shared, torch.cat(alone), atol=2e-5)


def test_its_base_stays_where_it_was(folder: Path) -> None:
    policy = Gpt2Policy(settings(folder))
    batch = collate(rows(folder))
    before = policy.score(batch, reference=True)
    assert torch.equal(before.logprobs_N, before.reference_logprobs_N)
    assert before.reference_kl_N.abs().max() < 1e-6
    with torch.no_grad():
        for weight in policy.parameters:
            weight.add_(0.05 * torch.randn_like(weight))
    after = policy.score(batch, reference=True)
    assert torch.equal(after.reference_logprobs_N, before.reference_logprobs_N)
    assert not torch.allclose(after.logprobs_N, before.logprobs_N, atol=1e-2)
    assert after.reference_kl_N.min() > 0


def test_a_wanted_kl_moves_the_policy_towards_its_base(folder: Path) -> None:
    policy = Gpt2Policy(settings(folder))
    with torch.no_grad():
        for weight in policy.parameters:
            weight.add_(0.02 * torch.randn_like(weight))
    batch, seen = collate(rows(folder)), []
    optimizer = torch.optim.Adam(policy.parameters, lr=1e-3)
    for _ in range(8):
        kl = policy.score(
            batch, with_gradient=WithGradient(kl="policy_reference"), reference=True
        ).kl_N.mean()
        kl.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(kl.item())
    assert seen[-1] < 0.7 * seen[0]


@pytest.mark.parametrize("objective", ["grpo", "dr-grpo", "dapo", "cispo", "gspo", "reinforce"])
def test_every_weight_learns_by_each_objective(folder: Path, objective: str) -> None:
    chosen = settings(
        folder, objective=objective, kl="policy_reference", lr=1e-3, gradient_checkpointing=True
    )
    policy = Gpt2Policy(chosen)
    before = [weight.detach().clone() for weight in policy.parameters]
    optimizer = adam.build(policy.parameters, lr=chosen.lr)
    groups = [make_group(number) for number in range(3)]
    result = train_step(policy, optimizer, groups, step=0, settings=chosen, state=RunningState())
    assert result.grad_norm > 0
    moved = [not torch.equal(old, new) for old, new in zip(before, policy.parameters, strict=True)]
    assert all(moved)


def test_a_commit_is_a_model_directory_and_the_way_back(folder: Path, tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    policy = Gpt2Policy(settings(folder))
    with torch.no_grad():
        for weight in policy.parameters:
            weight.add_(0.05)
    files = contents(policy.version_files())
    assert set(files) == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert json.loads(files["config.json"]) == json.loads((folder / "config.json").read_text())
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        expected = GPT2LMHeadModel.from_pretrained(tmp_path).eval()(ids).logits
        assert torch.allclose(policy.model(ids), expected, atol=1e-4)
    again = Gpt2Policy(settings(folder))
    again.load_version(tmp_path)
    assert contents(again.version_files()) == files


def test_an_adapter_is_committed_merged_too(folder: Path, tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    policy = build_policy(settings(folder, lora_rank=4, lora_targets="c_attn,c_proj,c_fc"))
    with torch.no_grad():
        for weight in policy.parameters:
            weight.normal_(std=0.1)
    files = contents(policy.version_files())
    assert {"adapter_model.safetensors", "config.json", "model.safetensors"} < set(files)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        merged = GPT2LMHeadModel.from_pretrained(tmp_path).eval()(ids).logits
        assert torch.allclose(policy.model(input_ids=ids).logits, merged, atol=1e-4)
        assert not torch.allclose(
            GPT2LMHeadModel.from_pretrained(folder).eval()(ids).logits, merged, atol=0.1
        )
    again = build_policy(settings(folder, lora_rank=4, lora_targets="c_attn,c_proj,c_fc"))
    again.load_version(tmp_path)
    assert contents(again.version_files()) == files
