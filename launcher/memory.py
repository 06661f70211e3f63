"""What memory a model needs to be served and trained, computed from its configuration.

Nothing here is measured on a GPU: the figures say whether a model fits with room to spare.
`rookery autobatch` measures.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rookery.errors import SetupError
from rookery.hub import CONFIG_FILE, text_folder
from rookery.model_defaults import parameter_count

GIB = 1 << 30
SERVED_SHARE = 0.9
"""vLLM's share of a GPU."""
RESERVED_GIB = 2.0
"""CUDA's context, kernels, graphs and the largest batch's activations: an assumption."""
LORA_RANK = 16
ACTIVATIONS = (10, 6)
"""Numbers kept for a token of a layer: so many times the hidden size, and so many times that of the MLP.
SmolLM2-135M in float32 was measured at 1.73 MiB a token, which is 26 times its hidden size in each layer."""


@dataclass(frozen=True, slots=True)
class Needs:
    """A model's memory, in bytes. `kv` and the activations are for one token, in bfloat16."""

    weights: int
    """How many weights it has, not bytes."""
    adapter: int
    """How many numbers a LoRA adapter of rank 16 on all linear layers has."""
    kv: float
    activations: float
    checkpointed: float
    """The activations if they are recomputed layer by layer."""

    def kv_tokens(self, gib: float) -> int:
        """How many tokens of prompts and answers a server on a GPU of `gib` holds at the same time."""
        free = (gib * SERVED_SHARE - RESERVED_GIB) * GIB - 2 * self.weights
        return max(0, int(free / self.kv))

    def train_tokens(self, gib: float, *, all_weights: bool = False, checkpointing: bool = True) -> int:
        """How many tokens fit into one forward and backward pass on a GPU of `gib`.

        The base is in bfloat16. What is trained takes 16 bytes a weight: in float32, its gradient and Adam's
        two moments.
        """
        used = 16 * self.weights if all_weights else 2 * self.weights + 16 * self.adapter
        free = (gib - RESERVED_GIB) * GIB - used
        return max(0, int(free / (self.checkpointed if checkpointing else self.activations)))


def needs_of(config: dict[str, Any]) -> Needs:
    """The needs of the model with this `config.json`, of Llama's family. Raises `SetupError` if it lacks what
    they are computed from."""
    config = config.get("text_config") or config
    weights = parameter_count(config)
    if weights is None or "hidden_size" not in config:
        raise SetupError(f"cannot compute the memory of a {config.get('model_type', 'model')!r}")
    width, layers, inner = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head, keys = config.get("head_dim") or width // heads, config.get("num_key_value_heads") or heads
    shapes = [
        (width, heads * head),
        *[(width, keys * head)] * 2,
        (heads * head, width),
        *[(width, inner)] * 3,
    ]
    numbers = ACTIVATIONS[0] * width + ACTIVATIONS[1] * inner
    return Needs(
        weights=weights,
        adapter=layers * LORA_RANK * sum(map(sum, shapes)),
        kv=2.0 * 2 * layers * keys * head,
        activations=2.0 * layers * numbers,
        checkpointed=2.0 * (layers * width + numbers),
    )


def memory_lines(model: str, gibs: Sequence[float]) -> Iterator[str]:
    """The table for `model` on GPUs of these sizes. Raises `SetupError` if there is no such model, or it is
    of an unknown kind."""
    needs = needs_of(json.loads((text_folder(model) / CONFIG_FILE).read_text()))
    yield f"memory of {model}: {needs.weights / 1e6:,.0f} million weights (computed, not measured)"
    yield f"  {'GPU':<10}{'served: tokens':>16}{'LoRA: tokens a pass':>22}{'all weights: tokens a pass':>28}"
    for gib in gibs:
        lora, whole = (needs.train_tokens(gib, all_weights=every) for every in (False, True))
        row = (f"{gib:g} GiB", _tokens(needs.kv_tokens(gib)), _tokens(lora), _tokens(whole))
        yield f"  {row[0]:<10}{row[1]:>16}{row[2]:>22}{row[3]:>28}"


def _tokens(count: int) -> str:
    return f"{count:,}" if count >= 1000 else "does not fit"
