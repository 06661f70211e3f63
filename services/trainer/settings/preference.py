"""Settings of the commands that train on preference pairs, and of the reward model's server."""

from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_settings import SettingsConfigDict

from rookery.settings import Port, Settings
from services.trainer.settings.device import Device
from services.trainer.settings.fitting import FitSettings, Place


class PairSettings(FitSettings):
    """Training on preference pairs."""

    data: Place
    """pairs.parquet of `rookery data pairs`, or JSON lines with prompt, chosen and rejected. A path, or
    s3://bucket/key."""
    held_out: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of the games (or of the positions, if no games are named) that is used only for evaluation."""
    steps: PositiveInt = 1000
    """Optimizer steps."""
    batch_size: PositiveInt = 64
    """Pairs per step."""
    eval_every: PositiveInt = 200
    """Steps between evaluations on held-out pairs. The last step is always evaluated."""


class RewardModelSettings(PairSettings):
    """Train a reward model: it gives the chosen answer of a pair a higher reward than the rejected one."""

    model_config = SettingsConfigDict(env_prefix="REWARD_MODEL_")

    lr: PositiveFloat = 5e-4
    """Peak learning rate. The schedule is a linear warm-up, then cosine."""
    margin: NonNegativeFloat = 0.0
    """Lead of the chosen answer required for a gap of 1 in win probability. 0 keeps the model calibrated."""
    save_dtype: Literal["bfloat16", "float32"] = "float32"
    """Data type of the exported weights."""


class DpoSettings(PairSettings):
    """Train an adapter by direct preference optimisation (DPO). The base model is the reference."""

    model_config = SettingsConfigDict(env_prefix="DPO_")

    lr: PositiveFloat = 2e-4
    """Peak learning rate. The schedule is a linear warm-up, then cosine."""
    lora_rank: PositiveInt = 16
    """Rank of the adapter. The model without the adapter is the reference."""
    beta: PositiveFloat = 0.1
    """Weight of the KL constraint to the reference. Small values let the policy move far away."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """Assumed share of pairs whose chosen and rejected answers are swapped."""


class RewardServerSettings(Settings):
    """Serve a reward model over HTTP."""

    model_config = SettingsConfigDict(env_prefix="REWARD_SERVER_")

    model: Path
    """Directory that `rookery reward-model` wrote."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8007
    """HTTP port; 0 picks a free one."""
    rows: PositiveInt = 8
    """Answers per forward pass. Every pass is padded to this number, so that an answer's score does not
    depend on the other answers in the pass."""
    queue: PositiveInt = 4096
    """Maximum number of waiting answers. Beyond it, callers are told to retry later."""
    device: Device = "auto"
    """`cpu`, the index of a GPU, or `auto`."""
    threads: NonNegativeInt = 0
    """CPU threads. 0 uses torch's default."""
