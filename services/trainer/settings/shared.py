"""Types and groups of settings that the trainer shares with `sft`, `reward-model` and `dpo`."""

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, NonNegativeInt, PositiveFloat, PositiveInt

from rookery.settings import Settings
from services.trainer.settings.conditional import When

_DEVICE = re.compile(r"auto|cpu|(?:cuda:)?(\d+)")


def _device(name: str) -> str:
    found = _DEVICE.fullmatch(name)
    if found is None:
        raise ValueError("is neither `auto`, `cpu` nor the index of a GPU")
    return found[1] or name


def _devices(names: str) -> str:
    parsed = [_device(name) for name in names.split(",")]
    if len(parsed) > 1 and not all(map(str.isdigit, parsed)):
        raise ValueError("of several devices each is the index of a GPU")
    if len(set(parsed)) < len(parsed):
        raise ValueError("names a device twice")
    return ",".join(parsed)


Device = Annotated[str, AfterValidator(_device)]
"""`auto`, `cpu` or the index of a GPU. `cuda:0` is converted to 0."""

Devices = Annotated[str, AfterValidator(_devices)]
"""Like `Device`, or the indices of several GPUs, separated by commas."""

AdamBits = Annotated[Literal[32, 8], BeforeValidator(int)]
"""Bits of Adam's moments. The validator converts the text of an environment variable."""

LrSchedule: TypeAlias = Literal["constant", "linear", "cosine"]
"""The learning rate's schedule after the warm-up."""

PathOrUrl = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)]
"""Not a `Path`, which would merge the slashes of a URL."""

ADAPTER_CONDITIONS = {name: When("lora_rank", but=(0,)) for name in ("lora_alpha", "lora_targets")}
"""Conditions of the settings of an adapter."""


class OptimiserSettings(Settings):
    """AdamW and its learning rate."""

    help_group: ClassVar[str] = "optimiser"

    lr: PositiveFloat = 1e-3
    """Learning rate after the warm-up."""
    warmup_steps: NonNegativeInt = 5
    """Steps of linear warm-up."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    adam_bits: AdamBits = 32
    """Bits of Adam's moments. 8 needs bitsandbytes and takes a quarter of their memory."""


class AdapterSettings(Settings):
    """The LoRA adapter, or the training of all weights."""

    help_group: ClassVar[str] = "adapter"

    lora_rank: NonNegativeInt = 0
    """Train a LoRA adapter of this rank. 0 trains all weights."""
    lora_alpha: PositiveInt = 32
    """The adapter is scaled by alpha / rank."""
    lora_targets: str = "all-linear"
    """Modules that get an adapter, separated by commas; never the head or the embeddings."""


class MemorySettings(Settings):
    """How a step is split, and what is kept in memory."""

    help_group: ClassVar[str] = "memory"

    micro_batch_tokens: NonNegativeInt = 0
    """Padded tokens per forward pass. Smaller values need more passes; the gradient is the same. 0: one."""
    row_tokens: NonNegativeInt = 0
    """Pack the examples of a step into rows of this many tokens, without mutual attention. 0: one per row."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""
