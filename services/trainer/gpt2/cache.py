"""Keys and values of the tokens seen so far, so that a further token costs one token's work.

Shapes: L layers, B rows, H heads, S slots for tokens, D width of a head.
"""

from dataclasses import dataclass

import torch

from services.trainer.gpt2.config import Gpt2Config


@dataclass(slots=True)
class Cache:
    """Room for `capacity` tokens a row, of which the first `length` are filled."""

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
        """Writes T tokens of one layer behind those that are there; all of that layer, [B, H, S, D].

        `length` moves when the last layer has written.
        """
        end = self.length + keys_BHTD.shape[2]
        self.keys_LBHSD[layer, :, :, self.length : end] = keys_BHTD
        self.values_LBHSD[layer, :, :, self.length : end] = values_BHTD
        every = self.keys_LBHSD[layer, :, :, :end], self.values_LBHSD[layer, :, :, :end]
        if layer + 1 == len(self.keys_LBHSD):
            self.length = end
        return every

    def take(self, rows_N: torch.Tensor) -> "Cache":
        """Returns a copy with these rows, in this order. A row may occur several times."""
        return Cache(
            self.keys_LBHSD.index_select(1, rows_N), self.values_LBHSD.index_select(1, rows_N), self.length
        )
