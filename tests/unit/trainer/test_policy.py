"""Numbers of the policy: sharing a prompt, cutting a batch and masking change nothing they should not."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rookery.config.finetune import SftSettings
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer.batches.micro_batches import collate, micro_batches
from services.trainer.batches.rows import Row, ScoredCompletion, prepare_batch
from services.trainer.model.policy import Policy
from services.trainer.training.update import Objective
from tests.unit.trainer.contents import contents
from tests.unit.trainer.gpt2_models import write_gpt2
from tests.unit.trainer.groups import make_group, prompt_places


@pytest.fixture(scope="module")
def policy(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    settings = TrainerSettings(model=tiny_model, run_dir=tmp_path_factory.mktemp("run"), device="cpu")
    policy = Policy(settings)
    with torch.no_grad():
        for index, parameter in enumerate(policy.parameters):
            torch.manual_seed(index)
            parameter.normal_(std=0.05)
    return policy


def _rows(count: int = 6) -> list[Row]:
    groups = [make_group(n, prompt_length=5 + n) for n in range(count)]
    settings = TrainerSettings(model=Path(), run_dir=Path(), row_tokens=64)
    return list(prepare_batch(groups, version=1, settings=settings, averages=None).rows)


def test_a_shared_prompt_gives_the_logprobs_of_each_sequence_alone(policy: Policy) -> None:
    row = _rows()[2]
    shared = policy.score(collate([row])).logprobs_N
    alone = []
    for completion in row.completions:
        ids = torch.tensor([row.prompt_ids + completion.token_ids])
        logits = policy.model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].log_softmax(-1)
        alone.append(logits.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0])
    assert torch.allclose(shared, torch.cat(alone), atol=2e-6)


def test_the_gradient_does_not_depend_on_how_the_batch_is_cut(policy: Policy) -> None:
    assert torch.allclose(_gradient(policy, 10_000), _gradient(policy, 40), atol=1e-6)


def _gradient(policy: Policy, tokens: int) -> "torch.Tensor":
    batch = _rows()
    total = sum(len(c.token_ids) for row in batch for c in row.completions)
    settings = TrainerSettings(model=Path(), run_dir=Path())
    objective = Objective.of(settings, coefficient=0.0, normaliser=total)
    policy.model.zero_grad()
    for micro in micro_batches(batch, tokens=tokens):
        tensors = collate(micro)
        loss, _ = objective(policy.score(tensors), tensors)
        loss.backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters])


def test_prompt_tokens_carry_no_loss(policy: Policy) -> None:
    """The last prompt token predicts the first answer; no prompt token is ever a target."""
    tensors = collate(_rows())
    answers = sum(len(c.token_ids) for row in _rows() for c in row.completions)
    assert tensors.targets_N.numel() == answers
    assert not prompt_places(_rows()) & set(tensors.predictor_N.tolist())


def test_completions_of_one_prompt_do_not_see_each_other(policy: Policy) -> None:
    row = _rows()[3]
    first, *others = row.completions
    changed = [
        ScoredCompletion(tuple(t % 79 + 1 for t in c.token_ids), c.logprobs, c.advantage, c.age)
        for c in others
    ]
    before = policy.score(collate([row])).logprobs_N
    after = policy.score(collate([Row(row.prompt_ids, (first, *changed), 1.0)])).logprobs_N
    count = len(first.token_ids)
    assert torch.equal(before[:count], after[:count])


def test_gradient_checkpointing_changes_no_gradient(policy: Policy, tiny_model: Path, tmp_path: Path) -> None:
    settings = TrainerSettings(model=tiny_model, run_dir=tmp_path, device="cpu", gradient_checkpointing=True)
    other = Policy(settings)
    for mine, theirs in zip(other.parameters, policy.parameters, strict=True):
        mine.data.copy_(theirs.data)
    assert torch.allclose(_gradient(policy, 10_000), _gradient(other, 10_000), atol=1e-6)


def test_the_head_in_chunks_gives_the_same_numbers(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = policy.score(collate(_rows()))
    monkeypatch.setattr("services.trainer.model.head._CHUNK_LOGITS", 96 * 7)
    parts = policy.score(collate(_rows()))
    assert torch.allclose(whole.logprobs_N, parts.logprobs_N, atol=1e-6)
    assert torch.allclose(whole.entropy_N, parts.entropy_N, atol=1e-6)


def test_an_untrained_adapter_is_the_base(tiny_model: Path, tmp_path: Path) -> None:
    fresh = Policy(TrainerSettings(model=tiny_model, run_dir=tmp_path, device="cpu"))
    ids = torch.tensor([[5, 9, 33]])
    with fresh.model.disable_adapter():
        base = fresh.model(input_ids=ids).logits
    assert torch.equal(fresh.model(input_ids=ids).logits, base)


def test_rows_of_two_temperatures_are_refused() -> None:
    a, b = _rows()[:2]
    with pytest.raises(ValueError, match="temperatures"):
        collate([a, Row(b.prompt_ids, b.completions, 0.5)])


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("c_attn,c_proj", "no module 'c_attn' in a Qwen3ForCausalLM, which has down_proj, gate_proj, k_proj"),
        ("q_proj,nope", "no module 'nope'"),
        ("q_proj,,v_proj", "no module ''"),
        ("q_proj, v_proj", "no module ' v_proj'"),
        ("lm_head", "lora_targets=lm_head: servers do not support adapters on the head"),
        ("q_proj,embed_tokens", "lora_targets=embed_tokens: servers do not support adapters on the head"),
    ],
)
def test_targets_are_modules_that_servers_take(
    targets: str, said: str, tiny_model: Path, tmp_path: Path
) -> None:
    settings = TrainerSettings(model=tiny_model, run_dir=tmp_path, device="cpu", lora_targets=targets)
    with pytest.raises(SetupError, match=re.escape(said)):
        Policy(settings)


def test_by_default_every_linear_layer_is_adapted(tiny_model: Path, tmp_path: Path) -> None:
    """Of Qwen3 and Llama those that their papers' runs name, of GPT-2 its own; never the head."""
    usual = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    default = TrainerSettings(model=tiny_model, run_dir=tmp_path, device="cpu")
    assert default.lora_targets == SftSettings(model=tiny_model, data=tmp_path, out=tmp_path).lora_targets
    named = default.model_copy(update={"lora_targets": usual})
    assert contents(Policy(default).version_files()) == contents(Policy(named).version_files())
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    LlamaForCausalLM(LlamaConfig(vocab_size=96, **shape)).save_pretrained(tmp_path / "llama")
    models = {tmp_path / "llama": usual, write_gpt2(tmp_path / "gpt2"): "c_attn,c_proj,c_fc"}
    for model, names in models.items():
        policy = Policy(default.model_copy(update={"model": model}))
        config = json.loads(contents(policy.version_files())["adapter_config.json"])
        assert set(config["target_modules"]) == set(names.split(","))


def test_our_linear_layer_has_the_numbers_of_pefts(policy: Policy) -> None:
    from peft.tuners.lora.layer import Linear

    from services.trainer.model.lora_linear import LoraLinear

    layers = [module for module in policy.model.modules() if isinstance(module, Linear)]
    assert {type(layer) for layer in layers} == {LoraLinear}
    ours, inputs = layers[0], torch.randn(2, 3, layers[0].in_features, requires_grad=True)
    leaves = [inputs, ours.lora_A["default"].weight, ours.lora_B["default"].weight]
    seen = []
    for forward in (LoraLinear.forward, Linear.forward):
        outputs = forward(ours, inputs)
        seen.append([outputs, *torch.autograd.grad(outputs.square().sum(), leaves)])
    torch.testing.assert_close(*seen, rtol=1e-5, atol=1e-5)
    for shape in ((2, 0), (0,), ()):
        no_tokens = inputs[0, 0].expand(*shape, -1)
        torch.testing.assert_close(ours(no_tokens), Linear.forward(ours, no_tokens))
    config = policy.model.peft_config["default"]
    policy.model.add_adapter("other", config)
    policy.model.set_adapter("other")
    torch.nn.init.ones_(ours.lora_B["other"].weight)
    torch.testing.assert_close(ours(inputs), Linear.forward(ours, inputs))


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SetupError, match=re.escape(f"no model in {str(folder)!r} (--model)")):
            Policy(TrainerSettings(model=folder, run_dir=tmp_path, device="cpu"))
