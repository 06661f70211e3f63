"""Settings of what learns from preference pairs, and of the server of a reward model."""

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
    """pairs.parquet of `rookery data pairs`, or JSON lines of the same: prompt, chosen, rejected. A path, or
    s3://bucket/key."""
    held_out: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of the games, or of the positions where no game is named, that is only evaluated on."""
    steps: PositiveInt = 1000
    """Optimizer steps."""
    batch_size: PositiveInt = 64
    """Pairs a step."""
    eval_every: PositiveInt = 200
    """Steps between evaluations on held-out pairs; the last step is always evaluated."""


class RewardModelSettings(PairSettings):
    """A reward model: a number for an answer, such that the chosen of a pair has the higher one."""

    model_config = SettingsConfigDict(env_prefix="REWARD_MODEL_")

    lr: PositiveFloat = 5e-4
    """Peak learning rate: warm-up, then cosine."""
    margin: NonNegativeFloat = 0.0
    """Lead that the chosen must have for a gap of 1 in win probability; 0 keeps probabilities calibrated."""
    save_dtype: Literal["bfloat16", "float32"] = "float32"
    """Of the exported weights."""


class DpoSettings(PairSettings):
    """Direct preference optimisation of an adapter against its own base."""

    model_config = SettingsConfigDict(env_prefix="DPO_")

    lr: PositiveFloat = 2e-4
    """Peak learning rate: warm-up, then cosine."""
    lora_rank: PositiveInt = 16
    """Rank of the adapter; without it, the base is the reference."""
    beta: PositiveFloat = 0.1
    """How dearly leaving the reference is paid: small values let the policy go far."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """Share of pairs believed to be the wrong way round."""


class RewardServerSettings(Settings):
    """Serves a reward model over HTTP."""

    model_config = SettingsConfigDict(env_prefix="REWARD_SERVER_")

    model: Path
    """Directory that `rookery reward-model` wrote."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8007
    """HTTP port; 0 picks a free one."""
    rows: PositiveInt = 8
    """Answers a forward pass. Each pass has all of them, filled up or not: so no answer's score depends on
    what was asked beside it."""
    queue: PositiveInt = 4096
    """Answers that may wait before callers are told to come back."""
    device: Device = "auto"
    """`cpu`, the index of a GPU, or `auto`."""
    threads: NonNegativeInt = 0
    """CPU threads; 0 leaves torch's choice."""
