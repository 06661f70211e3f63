"""GPT-2: token and position embeddings, pre-norm blocks of attention and MLP, a tied head, a cache.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019). There is no dropout, so that a
loss depends on weights and tokens only. Modules are named like Hugging Face's tensors.

Shapes: L layers, B rows, T tokens, S tokens attended to (T and those in the cache), H heads, D width of a
head or, in `hidden_BTD`, of the model.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from rookery.errors import InvalidInput
from services.trainer.attention import Blocks, attend_uncompiled

Mask: TypeAlias = torch.Tensor | Blocks | None
"""Which token attends to which: see `Gpt2.hidden`."""


@dataclass(frozen=True, slots=True)
class Gpt2Config:
    """The shape of a GPT-2, with transformers' names. By default GPT-2 small: 124 million parameters."""

    vocab_size: int = 50257
    max_position_embeddings: int = 1024
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise InvalidInput(f"{self.num_attention_heads} heads do not divide the width {self.hidden_size}")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


@dataclass(slots=True)
class Cache:
    """Keys and values of the tokens so far, so that they are not computed again for the next token. Rows have
    room for `capacity` tokens; the first `length` are filled."""

    keys_LBHSD: torch.Tensor
    values_LBHSD: torch.Tensor
    length: int = 0

    @classmethod
    def empty(
        cls, config: Gpt2Config, *, rows: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> "Cache":
        """Returns an empty cache for `rows` sequences."""
        shape = (config.num_hidden_layers, rows, config.num_attention_heads, capacity, config.head_dim)
        keys = torch.empty(shape, dtype=dtype, device=device)
        return cls(keys, torch.empty_like(keys))

    def extend(
        self, layer: int, keys_BHTD: torch.Tensor, values_BHTD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends T tokens of one layer, and returns all keys and values of that layer, [B, H, S, D].
        `length` grows when the last layer has written."""
        end = self.length + keys_BHTD.shape[2]
        self.keys_LBHSD[layer, :, :, self.length : end] = keys_BHTD
        self.values_LBHSD[layer, :, :, self.length : end] = values_BHTD
        layer_cache = self.keys_LBHSD[layer, :, :, :end], self.values_LBHSD[layer, :, :, :end]
        if layer + 1 == len(self.keys_LBHSD):
            self.length = end
        return layer_cache

    def select(self, rows_N: torch.Tensor) -> "Cache":
        """Returns a copy with these rows, in this order. A row may occur several times."""
        return Cache(
            self.keys_LBHSD.index_select(1, rows_N), self.values_LBHSD.index_select(1, rows_N), self.length
        )


class Attention(nn.Module):  # type: ignore[misc]
    """Multi-head self-attention."""

    def __init__(self, config: Gpt2Config, layer: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self._head_dim = config.head_dim
        self._layer = layer

    def forward(self, hidden_BTD: torch.Tensor, mask: Mask, cache: Cache | None) -> torch.Tensor:
        """Returns the attention output. Without a mask a token attends to itself and those before it."""
        rows, tokens, width = hidden_BTD.shape
        parts = self.c_attn(hidden_BTD).view(rows, tokens, 3, -1, self._head_dim)
        queries_BHTD, keys_BHSD, values_BHSD = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            keys_BHSD, values_BHSD = cache.extend(self._layer, keys_BHSD, values_BHSD)
        if isinstance(mask, Blocks):
            attended_BTHD = attend_uncompiled(queries_BHTD, keys_BHSD, values_BHSD, mask)
        else:
            attended_BTHD = F.scaled_dot_product_attention(
                queries_BHTD,
                keys_BHSD,
                values_BHSD,
                attn_mask=mask,
                # A single token is the last one and attends to all.
                is_causal=mask is None and tokens > 1,
            ).transpose(1, 2)
        return self.c_proj(attended_BTHD.reshape(rows, tokens, width))


class Mlp(nn.Module):  # type: ignore[misc]
    """Two linear layers around GELU in its tanh approximation."""

    def __init__(self, config: Gpt2Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.hidden_size, config.intermediate_size)
        self.c_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        return self.c_proj(F.gelu(self.c_fc(hidden_BTD), approximate="tanh"))


class TransformerBlock(nn.Module):  # type: ignore[misc]
    """Attention and MLP, each after a norm and added to its input."""

    def __init__(self, config: Gpt2Config, layer: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.attn = Attention(config, layer)
        self.ln_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.mlp = Mlp(config)

    def forward(self, hidden_BTD: torch.Tensor, mask: Mask, cache: Cache | None) -> torch.Tensor:
        hidden_BTD = hidden_BTD + self.attn(self.ln_1(hidden_BTD), mask, cache)
        return hidden_BTD + self.mlp(self.ln_2(hidden_BTD))


class Gpt2(nn.Module):  # type: ignore[misc]
    """The language model. `hidden` and `lm_head` are separate, so that a loss can compute few logits."""

    def __init__(self, config: Gpt2Config) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        """Recompute the blocks in the backward pass instead of keeping their activations."""
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.h = nn.ModuleList(TransformerBlock(config, layer) for layer in range(config.num_hidden_layers))
        self.ln_f = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.wte.weight

    def get_output_embeddings(self) -> nn.Linear:
        """The head, by the name that Hugging Face's models give it."""
        return self.lm_head

    def hidden(
        self,
        input_ids_BT: torch.Tensor,
        *,
        position_ids_BT: torch.Tensor | None = None,
        mask: Mask = None,
        cache: Cache | None = None,
    ) -> torch.Tensor:
        """The last hidden states, [B, T, D].

        `mask` is a tensor [B, 1, T, S], True where a token attends to another (every token must attend to
        at least one), or the blocks of a packed sequence. Without a mask, a token attends to itself and all
        before it. `position_ids_BT` by default continue from the cache. With a cache that is not empty,
        several tokens at once need a mask.
        """
        cached = cache.length if cache else 0
        if cached and input_ids_BT.shape[1] > 1 and mask is None:
            raise ValueError(f"{input_ids_BT.shape[1]} tokens after {cached} cached ones need a mask")
        if position_ids_BT is None:
            positions_T = torch.arange(cached, cached + input_ids_BT.shape[1], device=input_ids_BT.device)
            position_ids_BT = positions_T[None]
        hidden_BTD = self.wte(input_ids_BT) + self.wpe(position_ids_BT)
        for block in self.h:
            if self.gradient_checkpointing and torch.is_grad_enabled():
                hidden_BTD = checkpoint(block, hidden_BTD, mask, cache, use_reentrant=False)
            else:
                hidden_BTD = block(hidden_BTD, mask, cache)
        return self.ln_f(hidden_BTD)

    def forward(
        self, input_ids_BT: torch.Tensor, *, attention_mask_BT: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits, [B, T, V]. `attention_mask_BT` is 0 at padding, on the left or the right."""
        if attention_mask_BT is None:
            hidden_BTD = self.hidden(input_ids_BT)
        else:
            hidden_BTD = self.hidden(
                input_ids_BT,
                position_ids_BT=positions(attention_mask_BT),
                mask=padded_causal_mask(attention_mask_BT),
            )
        return self.lm_head(hidden_BTD)


def positions(attention_mask_BT: torch.Tensor) -> torch.Tensor:
    """Positions of tokens, not counting padding, [B, T]. Padding gets 0, and no token attends to it.

    >>> positions(torch.tensor([[0, 0, 1, 1, 1]]))
    tensor([[0, 0, 0, 1, 2]])
    """
    return (attention_mask_BT.long().cumsum(-1) - 1).clamp(min=0)


def padded_causal_mask(attention_mask_BT: torch.Tensor) -> torch.Tensor:
    """Returns a mask [B, 1, T, T]: True for the token itself and for earlier tokens that are not padding."""
    tokens = attention_mask_BT.shape[1]
    real_B1T = attention_mask_BT.bool()[:, None, :]
    # A token attends to itself even in the padding, because a softmax over nothing is NaN.
    itself_TT = torch.eye(tokens, dtype=torch.bool, device=attention_mask_BT.device)
    before_TT = torch.ones(tokens, tokens, dtype=torch.bool, device=attention_mask_BT.device).tril()
    mask_BTT: torch.Tensor = (before_TT & real_B1T) | itself_TT
    return mask_BTT[:, None]
