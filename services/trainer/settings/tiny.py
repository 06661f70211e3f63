"""Settings of a new rook-tiny model."""

from pathlib import Path

from pydantic import PositiveInt
from pydantic_settings import SettingsConfigDict

from rookery.settings import Settings


class TinySettings(Settings):
    """Write a randomly initialised rook-tiny model of the given shape."""

    model_config = SettingsConfigDict(env_prefix="TINY_")

    out: Path
    """Directory to write."""
    seed: int = 0
    """Seed of the weights."""
    hidden_size: PositiveInt = 128
    """Width of the hidden layers."""
    layers: PositiveInt = 4
    """Number of layers."""
    intermediate_size: PositiveInt = 384
    """Width of the MLP."""
    heads: PositiveInt = 4
    """Attention heads. There are half as many for keys and values."""
    head_dim: PositiveInt = 32
    """Width of a head."""
    pieces: bool = False
    """Use one token for each piece on each square, for the prompt style mover-twice."""
