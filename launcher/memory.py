"""What memory a model needs to be served and trained, computed from its configuration.

Nothing here is measured on a GPU: the figures say whether a model fits with room to spare.
`rookery autobatch` measures.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.files import read_object
from rookery.hub import CONFIG_FILE, text_folder
from rookery.model_defaults import parameter_count

GIB = 1 << 30
SERVED_SHARE = 0.9
"""vLLM's share of a GPU."""
RESERVED_GIB = 2.0
"""CUDA's context, kernels, graphs and the largest batch's activations: an assumption."""
CONTEXT_GIB = 1.0
"""What a process has of a GPU besides torch's memory: CUDA's context and kernels. An assumption."""
DRIVER_SHARE = 0.98
"""What the driver leaves of the memory that nvidia-smi reports. An assumption."""
SERVED_TOKENS = 8192
"""The least prompts and answers, in tokens, for which a server on a shared GPU must have room."""
LEAST_TOKENS, MOST_TOKENS = 1024, 8192
"""Tokens of a forward pass on a shared GPU."""
HALF = 0.5
"""The server's share of a GPU that also trains, unless `gpu_memory` says otherwise."""
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

    def kv_tokens(self, gib: float, *, share: float = SERVED_SHARE) -> int:
        """How many tokens a server with a `share` of a GPU of `gib` holds at the same time."""
        free = (gib * share - RESERVED_GIB) * GIB - 2 * self.weights
        return max(0, int(free / self.kv))

    def train_tokens(self, gib: float, *, all_weights: bool = False) -> int:
        """How many tokens fit into one forward and backward pass on a GPU of `gib`, with gradient
        checkpointing. The base is in bfloat16. What is trained takes 16 bytes a weight: in float32, its
        gradient and Adam's two moments."""
        used = 16 * self.weights if all_weights else 2 * self.weights + 16 * self.adapter
        free = (gib - RESERVED_GIB) * GIB - used
        return max(0, int(free / self.checkpointed))


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


@dataclass(frozen=True, slots=True)
class GpuShares:
    """How a server and a trainer divide one GPU: the share of a server that is awake, and the tokens of a
    trainer's forward pass while the server sleeps."""

    server: float
    tokens: int


def divide(
    needs: Needs, gib: float, trainer: TrainerSettings, *, in_bf16: bool, others_gib: float
) -> GpuShares:
    """Divides a GPU of `gib`, of which other processes have `others_gib`. Computed, not measured. Between its
    steps the trainer keeps its base, adapter and Adam's moments there, beside the server. Raises `SetupError`
    if they do not fit (the message names what takes less)."""
    moments = 0.0 if trainer.offload else trainer.adam_bits / 4
    if trainer.lora_rank:
        trained = needs.adapter * trainer.lora_rank / LORA_RANK
        base = {None: 2.0 if in_bf16 else 4.0, 8: 1.2, 4: 0.7}[trainer.base_bits] * needs.weights
    else:
        trained, base = needs.weights, 4.0 * needs.weights * (trainer.kl != "none")
    resting = (base + (4 + moments) * trained) / GIB + CONTEXT_GIB + others_gib
    share = min(SERVED_SHARE, math.floor(100 * (DRIVER_SHARE * gib - resting) / gib) / 100)
    served = (2 * needs.weights + SERVED_TOKENS * needs.kv) / GIB + RESERVED_GIB
    # While it sleeps, the server keeps its context; the trainer then has gradients and Adam's moments.
    free = gib - resting - 2 * CONTEXT_GIB - (4 + trainer.offload * trainer.adam_bits / 4) * trained / GIB
    a_token = needs.checkpointed if trainer.gradient_checkpointing else needs.activations
    tokens = min(MOST_TOKENS, int(free * GIB / (a_token if in_bf16 else 2 * a_token)))
    if share * gib < served or tokens < LEAST_TOKENS:
        raise SetupError(
            f"one GPU of {gib:.0f} GiB serves and trains: the trainer keeps {resting:.1f} GiB there, the "
            f"server needs {served:.1f}, and a forward pass has room for {max(0, tokens)} tokens. Less is "
            "needed with --set trainer.base_bits=4, trainer.offload=true, "
            "trainer.gradient_checkpointing=true, or with a smaller --model"
        )
    return GpuShares(share, tokens)


def memory_lines(
    model: str, gibs: Sequence[float], *, answer_tokens: int = 0, share: float = HALF
) -> Iterator[str]:
    """The table for `model` on GPUs of these sizes. The last two columns are for a GPU that does both, of
    which the server has a `share`. What is served is counted in tokens, or in prompts with answers of
    `answer_tokens` together. Raises `SetupError` if there is no such model, or it is of an unknown kind."""
    needs = needs_of(read_object(text_folder(model) / CONFIG_FILE))
    unit = f"answers of up to {answer_tokens:,} tokens" if answer_tokens else "tokens at a time"

    def served(tokens: int) -> str:
        return _count(tokens // (answer_tokens or 1), least=1 if answer_tokens else 1000)

    widths = "  {:<8}  {:>12}  {:>12}  {:>12}  {:>18}  {:>12}"
    heads = ("serves", "trains LoRA", "all weights", f"both: serves ({share:.0%})", "trains LoRA")
    yield f"memory of {model}: {needs.weights / 1e6:,.0f} million weights (computed, not measured)"
    yield f"  serves: {unit}; trains: tokens in a pass; both: on one GPU"
    yield widths.format("GPU", *heads)
    for gib in gibs:
        cells = (
            served(needs.kv_tokens(gib)),
            _count(needs.train_tokens(gib)),
            _count(needs.train_tokens(gib, all_weights=True)),
            served(needs.kv_tokens(gib, share=share)),
            _count(needs.train_tokens(gib * (1 - share))),
        )
        yield widths.format(f"{gib:g} GiB", *cells)


def _count(count: int, *, least: int = 1000) -> str:
    return f"{count:,}" if count >= least else "does not fit"
