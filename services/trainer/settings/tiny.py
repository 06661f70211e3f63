"""Shape of rook-tiny."""

from pathlib import Path

from pydantic import PositiveInt
from pydantic_settings import SettingsConfigDict

from rookery.settings import Settings


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
    heads: PositiveInt = 4
    """Attention heads; half as many for keys and values."""
    head_dim: PositiveInt = 32
    """Width of a head."""
    pieces: bool = False
    """A token for each piece on each square, for the prompt style mover-twice."""
