"""Settings that `sft`, `reward-model` and `dpo` share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rookery.settings import PresetSettings
from services.trainer.settings.adam import AdamBits
from services.trainer.settings.device import Device
from services.trainer.settings.scoped import ADAPTER, ScopedSettings, When

Place = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)]
"""A path or a URL, in which a `Path` would fold the slashes."""


class FitSettings(ScopedSettings, PresetSettings):
    """Training on a file of examples."""

    reading: ClassVar[Mapping[str, When]] = ADAPTER

    model: Path
    """Model to start from: a directory or a Hugging Face id."""
    data: Place
    """What to learn from."""
    out: Path
    """Receives model/, metrics.jsonl and the checkpoint."""
    steps: PositiveInt = 2000
    """Optimizer steps."""
    batch_size: PositiveInt = 128
    """Examples a step."""
    lr: PositiveFloat = 2e-3
    """Peak learning rate: warm-up, then cosine."""
    warmup_steps: NonNegativeInt = 100
    """Steps of linear warm-up."""
    weight_decay: NonNegativeFloat = 0.01
    """AdamW's."""
    adam_bits: AdamBits = 32
    """Of Adam's moments; 8 needs bitsandbytes and takes a quarter of their memory."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    max_length: PositiveInt = 384
    """Longest example, in tokens."""
    row_tokens: NonNegativeInt = 0
    """Packs the examples of a step into rows of so many tokens, apart from each other; 0: one a row."""
    micro_batch_tokens: NonNegativeInt = 0
    """Padded tokens a forward pass; fewer accumulate more passes, with the same gradient. 0: one pass."""
    eval_every: PositiveInt = 500
    """Steps between evaluations on held-out examples; the last step is always evaluated."""
    eval_examples: PositiveInt = 1024
    """Held-out examples an evaluation looks at, at most."""
    lora_rank: NonNegativeInt = 0
    """Trains a LoRA adapter of this rank; 0 trains all weights."""
    lora_alpha: PositiveInt = 32
    """Scale of the adapter is alpha over rank."""
    lora_targets: str = "all-linear"
    """Modules that get an adapter, with commas; never the head or the embeddings."""
    seed: int = 0
    """Of the order of the examples, and of new weights."""
    bf16: bool = True
    """Matrix products in bfloat16."""
    compile: bool = False
    """torch.compile the loss: 1.2 times as fast on a CPU (of rook-tiny) after a minute of compiling."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""
    device: Device = "auto"
    """`cpu`, the index of a GPU, or `auto`."""
    threads: NonNegativeInt = 0
    """CPU threads; 0 leaves torch's choice."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    save_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the exported weights."""

    mlflow: bool = False
    """Log to MLflow: to MLFLOW_TRACKING_URI, else to files in mlruns/ beside the run's folder."""

    def fingerprint(self) -> dict[str, str]:
        """What must not change when a run resumes."""
        free = {"out", "device", "threads", "save_every", "save_dtype", "eval_every", "eval_examples"}
        free |= {"preset", "dry_run", "mlflow"}
        free |= {"data", "eval_data"}  # whose bytes count: see `fitting.setup`
        return {name: _identity(value) for name, value in self.model_dump(exclude=free).items()}


def _identity(value: Any) -> str:
    """The same however a path is typed."""
    return str(value.resolve() if isinstance(value, Path) and value.exists() else value)
