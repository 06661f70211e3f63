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
"""A path or a URL. Not a `Path`, which would merge the slashes of a URL."""


class FitSettings(ScopedSettings, PresetSettings):
    """Training on a file of examples."""

    reading: ClassVar[Mapping[str, When]] = ADAPTER

    model: Path
    """Model to start from: a directory or a Hugging Face id."""
    data: Place
    """Training data."""
    out: Path
    """Folder for model/, metrics.jsonl and the checkpoint."""
    steps: PositiveInt = 2000
    """Optimizer steps."""
    batch_size: PositiveInt = 128
    """Examples per step."""
    lr: PositiveFloat = 2e-3
    """Peak learning rate. The schedule is a linear warm-up, then cosine."""
    warmup_steps: NonNegativeInt = 100
    """Steps of linear warm-up."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of AdamW."""
    adam_bits: AdamBits = 32
    """Bits of Adam's moments. 8 needs bitsandbytes and takes a quarter of their memory."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    max_length: PositiveInt = 384
    """Maximum length of an example, in tokens."""
    row_tokens: NonNegativeInt = 0
    """Pack the examples of a step into rows of this many tokens, without mutual attention. 0: one per row."""
    micro_batch_tokens: NonNegativeInt = 0
    """Padded tokens per forward pass. Smaller values need more passes; the gradient is the same. 0: one."""
    eval_every: PositiveInt = 500
    """Steps between evaluations on held-out examples. The last step is always evaluated."""
    eval_examples: PositiveInt = 1024
    """Maximum number of held-out examples per evaluation."""
    lora_rank: NonNegativeInt = 0
    """Train a LoRA adapter of this rank. 0 trains all weights."""
    lora_alpha: PositiveInt = 32
    """The adapter is scaled by alpha / rank."""
    lora_targets: str = "all-linear"
    """Modules that get an adapter, separated by commas; never the head or the embeddings."""
    seed: int = 0
    """Seed of the order of the examples and of new weights."""
    bf16: bool = True
    """Matrix products in bfloat16."""
    compile: bool = False
    """torch.compile the loss: 1.2 times as fast on a CPU (of rook-tiny) after a minute of compiling."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""
    device: Device = "auto"
    """`cpu`, the index of a GPU, or `auto`."""
    threads: NonNegativeInt = 0
    """CPU threads. 0 uses torch's default."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    save_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Data type of the exported weights."""

    mlflow: bool = False
    """Log to MLflow: to MLFLOW_TRACKING_URI if set, else to files in mlruns/ next to the run's folder."""

    def fingerprint(self) -> dict[str, str]:
        """The settings that must not change when a run is resumed."""
        free = {"out", "device", "threads", "save_every", "save_dtype", "eval_every", "eval_examples"}
        free |= {"preset", "dry_run", "mlflow"}
        free |= {"data", "eval_data"}  # compared by content: see `fitting.setup`
        return {name: _identity(value) for name, value in self.model_dump(exclude=free).items()}


def _identity(value: Any) -> str:
    """The value as text. Different spellings of the same path give the same text."""
    return str(value.resolve() if isinstance(value, Path) and value.exists() else value)
