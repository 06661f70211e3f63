"""Settings of the trainer's objectives. Light: no torch here, so that `--help` answers at once."""

from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_settings import SettingsConfigDict

from rookery.settings import Port, RunSettings, Settings


class TrainerSettings(RunSettings):
    """GRPO on the groups of a run's `traces` stream."""

    model_config = SettingsConfigDict(env_prefix="TRAINER_")

    model: Path
    """Base model directory; the same the inference servers were started with."""
    run_dir: Path
    """Receives metrics.jsonl and adapters/policy-v000000 and onwards."""
    inference_urls: str = "http://127.0.0.1:8000"
    """Servers to reload, separated by commas."""
    host: str = "127.0.0.1"
    """Address of probes and metrics."""
    port: Port = 8003
    """Port of probes and metrics."""
    device: str = "auto"
    """`cpu`, the index of a GPU, or `auto`."""
    threads: int = 0
    """CPU threads; 0 takes half of the cores: vLLM and Stockfish want the others."""

    max_steps: NonNegativeInt = 0
    """Ends the run after so many optimizer steps; 0 goes on."""
    batch_groups: PositiveInt = 32
    """Groups a step; the rollouts' admission must be told the same."""
    max_staleness: NonNegativeInt = 4
    """Groups more versions behind than this are dropped, and counted."""
    lr: PositiveFloat = 1e-3
    """Learning rate after the warm-up: constant."""
    warmup_steps: NonNegativeInt = 5
    """Steps of linear warm-up."""
    clip_low: PositiveFloat = 0.2
    """Importance ratios are clipped to [1 - clip_low, 1 + clip_high]."""
    clip_high: PositiveFloat = 0.28
    """See clip_low."""
    normalise: bool = True
    """Divide advantages by the group's standard deviation."""
    mask_truncated: bool = True
    """Completions cut at the token limit carry no loss."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""

    lora_rank: PositiveInt = 16
    """Rank of the adapter; vLLM must be started with at least this."""
    lora_alpha: PositiveInt = 32
    """Scale of the adapter is alpha over rank."""
    lora_targets: str = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    """Modules that get an adapter; never the head or the embeddings."""
    micro_batch_tokens: PositiveInt = 8192
    """Padded tokens a forward pass; smaller accumulates more passes, with the same gradient."""
    row_tokens: PositiveInt = 4096
    """Longest sequence made of a prompt and several of its completions."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""

    seed: int = 0
    """Of the adapter's first weights."""
    keep: int = Field(default=20, ge=8)
    """Newest adapters kept on disk; version 0 and every hundredth stay for ever."""

    @property
    def adapters_dir(self) -> Path:
        """Where versions are committed; the inference servers' adapter root."""
        return (self.run_dir / "adapters").absolute()

    def fingerprint(self) -> dict[str, str]:
        """What must not change when a run resumes."""
        fields = ("model", "lora_rank", "lora_alpha", "lora_targets", "batch_groups")
        return {name: str(getattr(self, name)) for name in fields}


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


class TinySettings(Settings):
    """Shape of a randomly initialised rook-tiny."""

    model_config = SettingsConfigDict(env_prefix="TINY_")

    out: Path
    """Directory to write."""
    seed: int = 0
    """Of the weights."""
    hidden_size: PositiveInt = 128
    """Width."""
    layers: PositiveInt = 4
    """Depth."""
    intermediate_size: PositiveInt = 384
    """Width of the MLP."""
