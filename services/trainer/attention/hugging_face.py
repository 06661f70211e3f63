"""Attention on packed sequences in Hugging Face models, registered through their `AttentionInterface`.

transformers passes keyword arguments of a model's forward to the attention function that its config names.
The function here receives a `BlockAttention` that way; without one it behaves like `sdpa`.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rookery.errors import SetupError
from services.trainer.attention import Blocks, attend, attend_uncompiled, causal_mask

NAME = "rookery"

_UNKNOWN = ("softcap", "s_aux", "position_bias")
"""Arguments that change the softmax. Some models pass them, and this attention does not support them."""


class BlockAttention:
    """The blocks of one forward pass, and how many layers have used them. `compiled` means that compiled code
    may include the attention itself."""

    def __init__(self, blocks: Blocks, *, compiled: bool = True) -> None:
        self.blocks = blocks
        self.attend = attend if compiled else attend_uncompiled
        self.layers = 0

    def check(self, model: Any) -> None:
        """Checks that all layers of `model` used the blocks. Other layers would mix completions. Raises
        `SetupError` if some layers did not."""
        layers = int(model.config.num_hidden_layers)
        if self.layers != layers:
            raise SetupError(
                f"{type(model).__name__}: {layers - self.layers} of its {layers} layers have no "
                "attention that keeps completions of a shared prompt apart"
            )


def enable(model: Any) -> None:
    """Makes `model` accept `block_attention=BlockAttention(...)` in its forward. Raises `SetupError` if it
    does not use `AttentionInterface`, or has chunked attention, which is not supported."""
    if "chunked_attention" in (getattr(model.config, "layer_types", None) or ()):
        raise SetupError(f"{type(model).__name__} has layers of 'chunked_attention', which are not supported")
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise SetupError(
            f"{type(model).__name__} does not accept another attention function (AttentionInterface)"
        )


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    block_attention: BlockAttention | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    if block_attention is None:
        queries, keys = query.shape[2], key.shape[2]
        if attention_mask is None and sliding_window is not None and sliding_window < keys:
            attention_mask = causal_mask(queries, keys, window=sliding_window, device=query.device)
        plain: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **rest
        )
        return plain
    for name in _UNKNOWN:
        if rest.get(name) is not None:
            raise SetupError(
                f"{type(module).__name__} passes {name!r} to its attention, which is not supported"
            )
    block_attention.layers += 1
    blocks = block_attention.blocks
    return block_attention.attend(query, key, value, blocks, scale=scaling, window=sliding_window), None


def _mask(*args: Any, **rest: Any) -> torch.Tensor | None:
    """Returns a mask for padding, or None if there is none: `_attention` handles sliding windows. Otherwise
    transformers would mistake positions that restart for packed sequences."""
    if rest.get("attention_mask") is None:
        return None
    return sdpa_mask(*args, **rest)


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
