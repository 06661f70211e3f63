"""Models that scale or cap their logits: every way to log-probabilities gives the model's own."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import Row, ScoredCompletion
from services.trainer.examples.rows import TokenizedExample, collate_examples
from services.trainer.finetune.model import answer_logprobs
from services.trainer.model.base_model import load_causal_lm
from services.trainer.model.head import WithGradient
from services.trainer.model.lora import with_adapter
from services.trainer.model.policy import Policy

SIZE = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "Granite": {"logits_scaling": 4.0},
    "GraniteMoe": {"logits_scaling": 3.0, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Cohere": {"logit_scale": 0.25},
    "Cohere2": {"logit_scale": 0.25},
    # Its attention's own cap is refused where completions share a prompt.
    "Gemma2": {"final_logit_softcapping": 2.0, "attn_logit_softcapping": None, "head_dim": 8},
    "Llama": {},
}
PROMPT, ANSWERS = [5, 6, 7, 8], ([9, 10, 11], [12, 13])


def write(folder: Path, name: str, **changed: Any) -> Path:
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**{**SIZE, **MODELS[name], **changed})
    getattr(transformers, f"{name}ForCausalLM")(config).save_pretrained(folder)
    return folder


def own_logprobs(model: Any) -> "torch.Tensor":
    """Of the answers' tokens, each after the prompt alone, by the model's own logits."""
    found = []
    for answer in ANSWERS:
        logits = model(input_ids=torch.tensor([PROMPT + answer])).logits[0, len(PROMPT) - 1 : -1]
        found.append(logits.float().log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0])
    return torch.cat(found)


def moved(parameters: Any) -> None:
    with torch.no_grad():
        for index, parameter in enumerate(parameters):
            torch.manual_seed(index)
            parameter.add_(torch.randn_like(parameter), alpha=0.05)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_trains_on_the_models_own_logprobs(name: str, tmp_path: Path) -> None:
    """And their gradients; the reference's, and the KL to it, too."""
    settings = TrainerSettings(model=write(tmp_path, name), run_dir=tmp_path, device="cpu", lora_rank=4)
    policy = Policy(settings)
    moved(policy.parameters)
    completions = tuple(ScoredCompletion(tuple(answer), (-1.0,) * len(answer), 1.0, 0) for answer in ANSWERS)
    batch = collate([Row(tuple(PROMPT), completions, 1.0)])
    scores = policy.score(batch, reference=True, with_gradient=WithGradient(kl="policy_reference"))
    mine = torch.autograd.grad(scores.logprobs_N.sum(), policy.parameters)
    expected = own_logprobs(policy.model)
    theirs = torch.autograd.grad(expected.sum(), policy.parameters)
    torch.testing.assert_close(scores.logprobs_N, expected, atol=1e-5, rtol=0)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    with policy.model.disable_adapter():
        base = own_logprobs(policy.model)
    assert (base - expected).abs().max() > 1e-3
    torch.testing.assert_close(scores.reference_logprobs_N, base, atol=1e-5, rtol=0)


@pytest.mark.parametrize("rank", [0, 4], ids=["all weights", "adapter"])
@pytest.mark.parametrize("name", MODELS)
def test_so_do_sft_and_dpo(name: str, rank: int, tmp_path: Path) -> None:
    """sft has a row for each answer, dpo one for the pair."""
    model = load_causal_lm(write(tmp_path, name), dtype=torch.float32)
    if rank:
        model = with_adapter(model, rank=rank, alpha=8, targets="all-linear")
        moved(parameter for parameter in model.parameters() if parameter.requires_grad)
    expected = own_logprobs(model)
    for answers in (
        [[TokenizedExample(PROMPT, (answer,))] for answer in ANSWERS],
        [[TokenizedExample(PROMPT, ANSWERS)]],
    ):
        torch.testing.assert_close(
            answer_logprobs(model, collate_examples(answers)), expected, atol=1e-5, rtol=0
        )


def test_scale_and_cap_of_these_models_matter(tmp_path: Path) -> None:
    for name, changed in MODELS.items():
        if name != "Llama":
            plain = {key: None if key.startswith("final") else 1.0 for key in list(changed)[:1]}
            models = [
                load_causal_lm(write(tmp_path / name, name, **other), dtype=torch.float32)
                for other in ({}, plain)
            ]
            with torch.no_grad():
                mine, theirs = map(own_logprobs, models)
            assert (mine - theirs).abs().max() > 0.1, name


def test_a_model_with_other_logits_is_refused_by_name(tmp_path: Path) -> None:
    """As one would be whose config names a cap that its code does not make, or the other way round."""
    folder = write(tmp_path, "Llama", final_logit_softcapping=1.5)
    with pytest.raises(SetupError, match=r"model type 'llama': its logits differ by up to \d+\.\d+ from"):
        Policy(TrainerSettings(model=folder, run_dir=tmp_path, device="cpu"))
    for dtype in (torch.float32, torch.bfloat16):
        with pytest.raises(SetupError, match="'llama'"):
            load_causal_lm(folder, dtype=dtype)


@pytest.mark.parametrize("name", MODELS)
def test_rounding_to_16_bits_is_no_difference(name: str, tmp_path: Path) -> None:
    load_causal_lm(write(tmp_path, name), dtype=torch.bfloat16)
