"""Attention by blocks is attention under a mask; models that could not do it are refused."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer import attention as blocks
from services.trainer.attention import Blocks, Segment, attend, hugging_face
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import Row, ScoredCompletion
from services.trainer.model.policy import Policy

SHAPE = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
}  # fmt: skip


def _row(prompt: int, completions: list[int], seed: int = 0) -> Row:
    rng = random.Random(seed)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(1, 90) for _ in range(count))

    return Row(
        tokens(prompt), tuple(ScoredCompletion(tokens(n), (-1.0,) * n, 1.0, 0) for n in completions), 1.0
    )


ROWS = [_row(5, [1, 7, 7, 6], 1), _row(9, [30, 3, 1], 2), _row(5, [8], 3), _row(1, [2, 1], 4)]


def _segments(rows: list[Row]) -> list[Segment]:
    found, start = [], 0
    for row in rows:
        begin, prompt = start, len(row.prompt_ids)
        found.append(Segment(begin, prompt))
        start += prompt
        for completion in row.completions:
            if inputs := len(completion.token_ids) - 1:
                found.append(Segment(start, inputs, begin, prompt))
                start += inputs
    return found


def _mask(segments: list[Segment], window: int | None) -> "torch.Tensor":
    """Token by token, from what a segment is said to be."""
    total = sum(segment.length for segment in segments)
    mask = torch.zeros(total, total, dtype=torch.bool)
    for segment in segments:
        keys = [*range(segment.context_start, segment.context_start + segment.context)]
        for token in range(segment.start, segment.start + segment.length):
            keys.append(token)
            mask[token, keys[-window:] if window else keys] = True
    return mask


@pytest.mark.parametrize("window", [None, 4, 100])
@pytest.mark.parametrize("groups", [4, 2])
def test_it_is_attention_under_a_mask_and_so_are_its_gradients(window: int | None, groups: int) -> None:
    segments = _segments(ROWS)
    total = sum(segment.length for segment in segments)
    torch.manual_seed(0)
    heads = [torch.randn(1, n, total, 8, dtype=torch.float64) for n in (4, groups, groups)]
    ours = [x.clone().requires_grad_() for x in heads]
    masked = [x.clone().requires_grad_() for x in heads]
    seen = attend(*ours, Blocks.of(segments), scale=0.3, window=window)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *masked, attn_mask=_mask(segments, window), scale=0.3, enable_gqa=True
    ).transpose(1, 2)
    torch.testing.assert_close(seen, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(seen)
    (seen * weights).sum().backward()
    (expected * weights).sum().backward()
    for mine, theirs in zip(ours, masked, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-10)


def test_elsewhere_than_on_a_cpu_heads_are_repeated_where_there_is_a_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[int, bool, bool]] = []
    whole = torch.nn.functional.scaled_dot_product_attention

    def noting(query: Any, key: Any, value: Any, **options: Any) -> "torch.Tensor":
        calls.append((key.shape[1], options["attn_mask"] is not None, options["enable_gqa"]))
        return whole(query, key, value, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)
    segments = _segments(ROWS)
    total = sum(segment.length for segment in segments)
    heads = [torch.empty(1, n, total, 8, device="meta") for n in (4, 2, 2)]
    assert attend(*heads, Blocks.of(segments, device="meta")).shape == (1, total, 4, 8)
    assert set(calls) == {(4, True, False), (2, False, True)}


@pytest.mark.parametrize("autocast", [False, True])
def test_a_cpu_attends_in_float32(monkeypatch: pytest.MonkeyPatch, *, autocast: bool) -> None:
    seen: list[torch.dtype] = []
    whole = torch.nn.functional.scaled_dot_product_attention

    def noting(*heads: "torch.Tensor", **options: Any) -> "torch.Tensor":
        made = whole(*heads, **options)
        seen.extend(x.dtype for x in (*heads, made))
        return made

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)
    segments = _segments(ROWS)
    total = sum(segment.length for segment in segments)
    torch.manual_seed(0)
    heads = [torch.randn(1, n, total, 8).bfloat16() for n in (4, 2, 2)]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        found = attend(*heads, Blocks.of(segments))
    assert set(seen) == {torch.float32}
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, attend(*(x.float() for x in heads), Blocks.of(segments)).bfloat16())


@pytest.mark.filterwarnings("ignore")  # torch says which kernels a CPU has not
def test_the_triangle_said_in_a_word_is_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """What GPUs are told; on a CPU torch draws the mask itself."""
    segments = _segments(ROWS)
    torch.manual_seed(0)
    heads = [torch.randn(1, 4, sum(s.length for s in segments), 8, dtype=torch.float64) for _ in range(3)]
    expected = attend(*heads, Blocks.of(segments))
    monkeypatch.setattr(blocks, "_has_lower_right_kernel", lambda device: True)
    torch.testing.assert_close(attend(*heads, Blocks.of(segments)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore")  # torch says which kernels a CPU has not
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])  # a CPU attends in float32 in the first
def test_rotated_queries_and_keys_are_cast_for_the_kernel_of_gpus(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Under autocast, rotary embeddings leave queries and keys in float32, beside values in 16 bits."""
    half = getattr(torch, dtype)
    segments = _segments(ROWS)
    torch.manual_seed(0)
    heads = [torch.randn(1, n, sum(s.length for s in segments), 8, requires_grad=True) for n in (4, 2, 2)]
    expected = attend(*heads, Blocks.of(segments))
    monkeypatch.setattr(blocks, "_has_lower_right_kernel", lambda device: True)
    with torch.autocast("cpu", dtype=half):
        attended = attend(*heads[:2], heads[2].to(half), Blocks.of(segments))
    assert attended.dtype == half
    torch.testing.assert_close(attended.float(), expected, rtol=0.02, atol=0.02)
    attended.float().sum().backward()
    assert all(torch.isfinite(head.grad).all() for head in heads)


def test_like_segments_go_together_and_long_ones_do_not_fill_up_short_ones() -> None:
    blocks = Blocks.of(_segments([_row(20, [101, 101, 90, 11, 401], 0), _row(20, [12], 1)]))
    shapes = [(*block.queries_SQ.shape, block.keys_SK.shape[1]) for block in blocks.blocks]
    assert shapes == [(1, 400, 420), (3, 100, 120), (2, 11, 31), (2, 20, 20)]


def _policy(tmp_path: Path, model: Any) -> Policy:
    model.save_pretrained(tmp_path / "model")
    return Policy(
        TrainerSettings(
            model=tmp_path / "model", run_dir=tmp_path, device="cpu", lora_targets="q_proj,k_proj,v_proj"
        )
    )


def _alone(model: Any) -> "torch.Tensor":
    found = []
    for row in ROWS:
        for completion in row.completions:
            ids = torch.tensor([row.prompt_ids + completion.token_ids])
            logs = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].log_softmax(-1)
            found.append(logs.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0])
    return torch.cat(found)


@pytest.mark.parametrize("family", ["llama", "mistral, a window of 6"])
def test_families_share_prompts_exactly(family: str, tmp_path: Path) -> None:
    """As transformers' plainest code has each sequence alone, which knows windows."""
    torch.manual_seed(0)
    policy = _policy(
        tmp_path,
        LlamaForCausalLM(LlamaConfig(**SHAPE))
        if family == "llama"
        else MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=6)),
    )
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager")
    with torch.no_grad():
        shared = policy.score(collate(ROWS)).logprobs_N
        torch.testing.assert_close(shared, _alone(plain), atol=3e-6, rtol=0)


def test_padding_is_masked_where_a_model_is_used_by_itself(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    ids, present = torch.tensor([[0, 0, 7, 8, 9]]), torch.tensor([[0, 0, 1, 1, 1]])
    with torch.no_grad():
        expected = model(input_ids=ids[:, 2:]).logits
        hugging_face.enable(model)
        padded = model(
            input_ids=ids, attention_mask=present, position_ids=(present.cumsum(-1) - 1).clamp(min=0)
        )
    torch.testing.assert_close(padded.logits[:, 2:], expected, atol=1e-5, rtol=0)


def test_a_window_is_minded_where_a_model_is_used_by_itself() -> None:
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=6)).eval()
    ids = torch.arange(1, 31).view(2, 15)
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        hugging_face.enable(model)
        torch.testing.assert_close(model(input_ids=ids).logits, expected, atol=1e-5, rtol=0)


def test_a_model_outside_the_interface_is_refused(tmp_path: Path) -> None:
    model = GPTJForCausalLM(GPTJConfig(vocab_size=96, n_embd=32, n_layer=1, n_head=2, rotary_dim=8))
    with pytest.raises(SetupError, match="does not accept another attention function"):
        hugging_face.enable(model)


def test_a_softmax_of_another_kind_is_refused(tmp_path: Path) -> None:
    policy = _policy(tmp_path, Gemma2ForCausalLM(Gemma2Config(**SHAPE)))
    with pytest.raises(SetupError, match="passes 'softcap' to its attention"):
        policy.score(collate(ROWS))


def test_layers_that_mix_tokens_in_another_way_are_refused(tmp_path: Path) -> None:
    config = Qwen3NextConfig(
        **SHAPE, linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8,
        linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"], num_experts=0,
    )  # fmt: skip
    policy = _policy(tmp_path, Qwen3NextForCausalLM(config))
    with pytest.raises(SetupError, match="1 of its 2 layers have no attention"):
        policy.score(collate(ROWS))


def test_attention_in_chunks_is_refused() -> None:
    """Llama 4 hands its chunks on in a mask alone, which a shared line has none of."""
    config = Llama4TextConfig(**{**SHAPE, "head_dim": 16}, intermediate_size_mlp=32, num_local_experts=1)
    with pytest.raises(SetupError, match="layers of 'chunked_attention'"):
        hugging_face.enable(Llama4ForCausalLM(config))
