"""Prepares any Hugging Face causal LM for training, and computes log-probabilities of answer tokens.

Nothing here depends on an architecture: the body is transformers' `base_model` (named `model`, `transformer`
or otherwise), and the head is `model.base_model.Head`. Dropout is off, so that a loss depends only on weights
and tokens.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

from rookery.config.finetune import FinetuneSettings
from rookery.errors import SetupError
from rookery.hub import BOS, begins_with_bos, with_system_role
from services.trainer.attention import hugging_face
from services.trainer.attention.hugging_face import BlockAttention
from services.trainer.distributed.placement import computes_in_bf16, device_named
from services.trainer.examples.chats import PLAIN_TEMPLATE
from services.trainer.examples.rows import TokenBatch
from services.trainer.model.base_model import (
    Head,
    check_length,
    check_text_only,
    config_without_dropout,
    named_in_errors,
)
from services.trainer.model.lora import with_adapter

_CHUNK_LOGITS = 1 << 26
"""Logits in memory at once: 256 MiB in float32."""


def load_chat_tokenizer(path: Path) -> Any:
    """Loads the model's tokenizer, with the chat template that the server uses too.

    Without a template, it gets `PLAIN_TEMPLATE`. One that refuses system messages shows them to the user.

    Raises:
        SetupError: there is none, or it has no template and no end token, so that answers would not end.
    """
    with named_in_errors(path):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if tokenizer.chat_template is None:
        if tokenizer.eos_token is None:
            raise SetupError(
                f"{str(path)!r} has neither a chat template nor an eos_token to end answers with"
            )
        tokenizer.chat_template = BOS + PLAIN_TEMPLATE if begins_with_bos(path) else PLAIN_TEMPLATE
    elif isinstance(tokenizer.chat_template, str):
        tokenizer.chat_template = with_system_role(tokenizer.chat_template)
    return tokenizer


def stop_at(token: int, model: Any, tokenizer: Any) -> None:
    """Lets the generation config of `model` name the special token with which the answers end. Servers stop
    at those, and at the tokenizer's end token, which for Llama 3 is another one."""
    stops = model.generation_config.eos_token_id
    known = stops if isinstance(stops, list) else [number for number in (stops,) if number is not None]
    added = tokenizer.added_tokens_decoder.get(token)
    if added and added.special and token not in (tokenizer.eos_token_id, *known):
        model.generation_config.eos_token_id = [*known, token]


def load_sequence_classifier(path: Path, *, dtype: torch.dtype, pad_id: int) -> Any:
    """Loads a model with a head of one number, `score`. The head is new unless the directory has one. Raises
    `SetupError` if there is no such model, it also reads images or sound, or it lacks other weights."""
    with named_in_errors(path):
        config = config_without_dropout(path)
    config.num_labels, config.pad_token_id = 1, pad_id
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # it would report a new head as missing
    try:
        with named_in_errors(path):
            model, loaded = AutoModelForSequenceClassification.from_pretrained(
                path,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                trust_remote_code=False,
            )
    finally:
        transformers_logging.set_verbosity(level)
    check_text_only(model, path)
    if missing := sorted(name for name in loaded["missing_keys"] if not name.startswith("score.")):
        raise SetupError(f"{str(path)!r} lacks weights of its model, such as {missing[0]!r}")
    return model


def hidden_states(model: Any, batch: TokenBatch) -> torch.Tensor:
    """Returns the last hidden states, flattened [B * T, D], of a model with or without an adapter. Raises
    `SetupError` if the rows need attention in blocks, which the model does not support."""
    unwrapped = model.get_base_model() if hasattr(model, "get_base_model") else model
    attention = None
    if batch.blocks:
        if unwrapped.config._attn_implementation != hugging_face.NAME:
            hugging_face.enable(unwrapped)
        attention = BlockAttention(batch.blocks)
    hidden_BTD: torch.Tensor = unwrapped.base_model(
        input_ids=batch.ids_BT,
        position_ids=batch.positions_BT,
        use_cache=False,
        **({"block_attention": attention} if attention else {}),
    ).last_hidden_state
    if attention:
        attention.check(unwrapped.base_model)
    return hidden_BTD.flatten(0, 1)


def answer_logprobs(model: Any, batch: TokenBatch) -> torch.Tensor:
    """Returns log p of each target, [N] in float32. The head sees only hidden states that predict an answer
    token, in chunks that are recomputed in the backward pass: the full logits [B, T, V] never exist."""
    hidden_ND = hidden_states(model, batch)[batch.predictor_N]
    head = Head.of(model)
    size = max(1, _CHUNK_LOGITS // model.get_output_embeddings().weight.shape[0])
    if len(hidden_ND) <= size:
        return _logprobs(head, hidden_ND, batch.targets_N)
    parts = [
        checkpoint(_logprobs, head, hidden, targets, use_reentrant=False)
        for hidden, targets in zip(hidden_ND.split(size), batch.targets_N.split(size), strict=True)
    ]
    return torch.cat(parts)


def _logprobs(head: Head, hidden_ND: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
    return -F.cross_entropy(head(hidden_ND), targets_N, reduction="none")


def base_dtype(settings: FinetuneSettings) -> torch.dtype:
    """Returns the type of the base: bfloat16 if it is frozen, on a GPU, in that precision; else float32."""
    device = device_named(settings.device)
    in_bf16 = device.type == "cuda" and computes_in_bf16(settings.precision, device)
    return torch.bfloat16 if settings.lora_rank and in_bf16 else torch.float32


def prepare_model(model: Any, settings: FinetuneSettings, *, trained_whole: tuple[str, ...] = ()) -> Any:
    """Returns the model on its device in training mode, with an adapter if the settings ask for one.
    Raises `SetupError` if `max_length` is more than the model's positions, or `lora_targets` do not fit
    the model."""
    check_length(model, settings.max_length, name=f"--max-length {settings.max_length}")
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    if settings.lora_rank:
        model = with_adapter(
            model,
            rank=settings.lora_rank,
            alpha=settings.lora_alpha,
            targets=settings.lora_targets,
            trained_whole=trained_whole,
        )
    return model.to(device_named(settings.device)).train()
