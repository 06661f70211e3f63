"""The shape of a GPT-2, from the `config.json` of a Hugging Face model directory."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rookery.errors import InvalidInput

CONFIG_FILE = "config.json"
MODEL_TYPE = "gpt2"

_ONLY: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
}
"""Settings of Hugging Face's GPT-2 that change its numbers, and the values computed here."""


@dataclass(frozen=True, slots=True)
class Gpt2Config:
    """By Hugging Face's present names. The defaults are GPT-2 small's: 124 million parameters."""

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
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The shape of a model directory.

        Raises:
            InvalidInput: it is no GPT-2, or one that computes otherwise.
        """
        path = folder / CONFIG_FILE
        try:
            values: dict[str, Any] = json.loads(path.read_text())
            return cls._of(values)
        except KeyError as error:
            raise InvalidInput(f"{path} does not say {error}") from error
        except (OSError, ValueError, InvalidInput) as error:
            raise InvalidInput(f"{path}: {error}") from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Self:
        if values.get("model_type") != MODEL_TYPE:
            raise InvalidInput(f"model_type {values.get('model_type')!r} is not {MODEL_TYPE!r}")
        for name, allowed in _ONLY.items():
            if values.get(name, allowed[0]) not in allowed:
                raise InvalidInput(f"{name} {values[name]!r}: only {allowed[0]!r} is computed here")
        width = values["n_embd"]
        return cls(
            vocab_size=values["vocab_size"],
            max_position_embeddings=values["n_positions"],
            hidden_size=width,
            num_hidden_layers=values["n_layer"],
            num_attention_heads=values["n_head"],
            intermediate_size=values.get("n_inner") or 4 * width,
            layer_norm_epsilon=values.get("layer_norm_epsilon", 1e-5),
            tie_word_embeddings=values.get("tie_word_embeddings", True),
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the content of `config.json` for transformers and vLLM."""
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": MODEL_TYPE,
            "activation_function": "gelu_new",
            "vocab_size": self.vocab_size,
            "n_positions": self.max_position_embeddings,
            "n_ctx": self.max_position_embeddings,
            "n_embd": self.hidden_size,
            "n_layer": self.num_hidden_layers,
            "n_head": self.num_attention_heads,
            "n_inner": self.intermediate_size,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "tie_word_embeddings": self.tie_word_embeddings,
        }
