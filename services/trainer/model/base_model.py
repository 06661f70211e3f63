"""Loads a base model, in its own precision or in 8 bits, and says how many positions it has.

In 8 bits (LLM.int8(), arXiv 2208.07339), each row of a linear layer's weight becomes integers with one scale.
Head, embeddings, norms and the adapter do not change. bitsandbytes does the computing: on a GPU it multiplies
integers, with inputs beyond 6 separately in 16 bits; on a CPU it scales the weights back before the product.
"""

import importlib.util
import logging
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rookery.errors import SetupError
from rookery.trace import TraceGroup
from services.trainer.model import logits

_STRETCHED = ("linear", "dynamic", "yarn")
"""Rotary scalings whose factor extends the model beyond the limit in its config."""


def load_causal_lm(path: Path, *, dtype: torch.dtype, **loading: Any) -> Any:
    """Loads the language model of a directory or a Hugging Face id. `loading` goes to `from_pretrained`.

    Raises:
        SetupError: there is none, or its logits differ from those of `Head`.
    """
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path, config=config_without_dropout(path), dtype=dtype, **loading
        )
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise SetupError(f"no model in {str(path)!r} (--model): {why}") from error
    logits.check(model)
    return model


def load_int8(path: Path, *, dtype: torch.dtype, device: torch.device) -> Any:
    """Loads the language model of a directory onto `device`. Weights that are not quantised have `dtype`.

    Raises:
        SetupError: bitsandbytes is not installed, or there is no model.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise SetupError("--int8-base needs bitsandbytes: pip install 'rookery[bits8]'")
    from transformers import BitsAndBytesConfig

    # It would warn at every product that it casts the inputs to 16 bits.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    model = load_causal_lm(
        path,
        dtype=dtype,
        quantization_config=BitsAndBytesConfig(load_in_8bit=True),
        device_map={"": str(device) if device.index is not None or device.type == "cpu" else 0},
    )
    if device.type == "cpu":
        # The other weights point into the memory-mapped file; copying them lets all of it be freed.
        for weight in model.parameters():
            if weight.dtype != torch.int8:
                weight.data = weight.data.clone()
    return model


def config_without_dropout(path: Path) -> Any:
    """Returns the config of a model with dropout off, so that a loss depends on weights and tokens only."""
    config = AutoConfig.from_pretrained(path)
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def max_positions(config: Any) -> int | None:
    """Returns the number of positions of the model with this config; None if it names no limit.

    After the last one, GPT-2 has no embedding and other models are untrained.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    most = getattr(config, "max_position_embeddings", None)  # GPT-2's `n_positions`, too
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if most and rope.get("rope_type", rope.get("type")) in _STRETCHED:
        most = max(most, int(rope.get("factor", 1) * rope.get("original_max_position_embeddings", most)))
    return most


def check_length(model: Any, tokens: int, *, name: str) -> None:
    """Rejects sequences that are too long: of `tokens` tokens. `name` is for the message.

    Raises:
        SetupError: the model has fewer positions.
    """
    most = max_positions(model.config)
    if most is not None and tokens > most:
        raise SetupError(f"{name}: {tokens:,} tokens, but the model has {most:,} positions")


def check_group_length(model: Any, group: TraceGroup) -> None:
    """Rejects a group with a sequence that is too long.

    Raises:
        SetupError: the prompt with the longest completion has more tokens than the model has positions.
    """
    prompt = len(group.prompt_token_ids)
    longest = max(len(trace.completion.token_ids) for trace in group.traces)
    name = f"group {group.id}, a prompt of {prompt:,} and a completion of {longest:,} tokens"
    check_length(model, prompt + longest, name=name)
