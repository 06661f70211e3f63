"""Settings of supervised fine-tuning."""

from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat, PositiveInt
from pydantic_settings import SettingsConfigDict

from rookery.settings import Settings


class SftSettings(Settings):
    """Supervised fine-tuning on chat examples."""

    model_config = SettingsConfigDict(env_prefix="SFT_")

    model: Path
    """Model directory to start from."""
    data: Path
    """JSONL of {"messages": [...]}, the assistant last."""
    out: Path
    """Receives model/, metrics.jsonl and the checkpoint."""
    steps: PositiveInt = 2000
    """Optimizer steps."""
    batch_size: PositiveInt = 128
    """Examples a step."""
    lr: PositiveFloat = 2e-3
    """Peak learning rate: warm-up, then cosine."""
    warmup_steps: int = 100
    """Steps of linear warm-up."""
    weight_decay: float = 0.01
    """AdamW's."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    max_length: PositiveInt = 384
    """Longer examples are cut, in tokens."""
    seed: int = 0
    """Order of the examples."""
    bf16: bool = True
    """Autocast matrix products to bfloat16."""
    compile: bool = False
    """torch.compile the loss: about 1.5 times as fast on CPU after a minute of compiling."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""
    threads: int = 0
    """CPU threads; 0 leaves torch's choice."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    save_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the exported weights."""

    def fingerprint(self) -> str:
        """What must not change when a run resumes."""
        fields = self.model_dump(include={"data", "batch_size", "lr", "seed", "max_length", "steps"})
        return " ".join(f"{key}={value}" for key, value in sorted(fields.items()))
