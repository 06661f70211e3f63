"""Rows of tokens: however examples are laid, the numbers are those of a prompt and one answer alone."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from services.trainer.examples.rows import (
    SoftTargets,
    TokenizedExample,
    collate_examples,
    group_rows,
    pack_rows,
    share_prompts,
)
from services.trainer.finetune.model import answer_logprobs, hidden_states


def _qwen3(tiny_model: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64)


def _gpt2(_: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 96, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0)).double().eval()


def _llama(_: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).double().eval()


FAMILIES = {"qwen3": _qwen3, "gpt2": _gpt2, "llama": _llama}


def _examples(count: int, *, answers: int) -> list[TokenizedExample]:
    rng = random.Random(count)

    def tokens(most: int) -> list[int]:
        return [rng.randrange(5, 90) for _ in range(rng.randint(1, most))]

    return [TokenizedExample(tokens(9), tuple(tokens(5) for _ in range(answers))) for _ in range(count)]


def _by_hand(model: torch.nn.Module, examples: list[TokenizedExample]) -> list[torch.Tensor]:
    """log p of each answer's tokens from plain forward passes over prompt + answer."""
    found = []
    for example in examples:
        for answer in example.answers:
            ids = torch.tensor([[*example.prompt_ids, *answer]])
            logs = model(input_ids=ids).logits[0].log_softmax(-1)
            places = torch.arange(len(example.prompt_ids) - 1, ids.shape[1] - 1)
            found.append(logs[places, torch.tensor(answer)])
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row_tokens", [0, 40])
@pytest.mark.parametrize("answers", [1, 2])
def test_laid_together_the_numbers_are_those_of_each_answer_alone(
    tiny_model: Path, family: str, row_tokens: int, answers: int
) -> None:
    model = FAMILIES[family](tiny_model)
    packed = pack_rows(_examples(7, answers=answers), row_tokens=row_tokens)
    assert (max(len(row) for row in packed) > 1) == bool(row_tokens)
    laid = collate_examples(packed)
    examples = [example for row in packed for example in row]
    with torch.no_grad():
        together = answer_logprobs(model, laid)
        alone = _by_hand(model, examples)
    # The head's cross-entropy is float32 by design.
    assert torch.allclose(together.double(), torch.cat(alone), atol=2e-6)
    assert torch.bincount(laid.answer_N).tolist() == [len(one) for one in alone]


def test_packed_gradients_are_those_of_rows_of_their_own(tiny_model: Path) -> None:
    gradients = []
    for row_tokens in (0, 50):
        model = _qwen3(tiny_model)
        laid = collate_examples(pack_rows(_examples(6, answers=2), row_tokens=row_tokens))
        answer_logprobs(model, laid).sum().backward()
        gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad)
    assert torch.allclose(*gradients, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("tokens", [0, 30])
def test_answers_that_share_a_prompt_have_the_losses_of_each_alone(
    tiny_model: Path, family: str, tokens: int
) -> None:
    """In float32: the losses, the gradient of each layer, and soft targets of one of the answers."""
    examples = [
        TokenizedExample(example.prompt_ids, (answer,))
        for example in _examples(5, answers=4)
        for answer in example.answers
    ]
    soft = SoftTargets.of(examples[2].answers[0], {0: {7: 0.5, 9: 0.5}})
    examples[2] = replace(examples[2], soft_targets=(soft,))
    shared = share_prompts(examples, tokens=tokens)
    assert len(shared) < len(examples)
    assert not tokens or max(example.length for example in shared) <= tokens
    losses, gradients = [], []
    for kind in (examples, shared):
        model = FAMILIES[family](tiny_model).float()
        laid = collate_examples([[example] for example in kind])
        losses.append(-laid.weights_N * answer_logprobs(model, laid))
        losses[-1].sum().backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.base_model.parameters()]))
    assert torch.allclose(*losses, atol=1e-5, rtol=0)
    assert torch.allclose(*gradients, atol=1e-5, rtol=1e-5)


def test_the_end_of_an_answer_is_its_last_token(tiny_model: Path) -> None:
    model = _qwen3(tiny_model)
    packed = pack_rows(_examples(4, answers=2), row_tokens=50)
    laid = collate_examples(packed)
    with torch.no_grad():
        ends = hidden_states(model, laid)[laid.end_K]
        texts = [[*e.prompt_ids, *answer] for row in packed for e in row for answer in e.answers]
        for end, text in zip(ends, texts, strict=True):
            ids = torch.tensor([text])
            assert torch.allclose(end, model.model(input_ids=ids).last_hidden_state[0, -1], atol=1e-9)


def test_rows_hold_every_example_once_within_their_bound() -> None:
    examples = _examples(60, answers=1)
    packed = pack_rows(examples, row_tokens=30)
    assert Counter(id(e) for row in packed for e in row) == Counter(id(e) for e in examples)
    assert all(sum(e.length for e in row) <= 30 for row in packed)
    assert len(packed) < 30
    cut = group_rows(packed, tokens=60)
    assert Counter(id(row) for micro in cut for row in micro) == Counter(id(row) for row in packed)
    assert all(len(micro) * max(sum(e.length for e in row) for row in micro) <= 60 for micro in cut)
    assert len(group_rows(packed, tokens=0)) == 1


def test_what_shares_a_row_is_one_line_without_padding() -> None:
    examples = _examples(9, answers=2)
    laid = collate_examples(pack_rows(examples, row_tokens=40))
    assert laid.ids_BT.shape == (1, sum(example.length for example in examples))
    assert laid.blocks is not None
    assert collate_examples(pack_rows(_examples(9, answers=1))).blocks is None


def test_positions_of_padding_are_no_beginning_of_another_sequence() -> None:
    laid = collate_examples(pack_rows(_examples(9, answers=1)))
    assert laid.ids_BT.shape[0] == 9
    assert (laid.positions_BT == torch.arange(laid.ids_BT.shape[1])).all()


def test_an_answer_without_tokens_carries_nothing() -> None:
    laid = collate_examples(pack_rows([TokenizedExample([5, 6, 7], ([],)), TokenizedExample([5, 6], ([8],))]))
    assert laid.targets_N.tolist() == [8]
    assert laid.predictor_N.tolist() == [4]
    assert laid.answer_N.tolist() == [1]
