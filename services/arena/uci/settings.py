"""Settings of the UCI engine."""

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from rookery.settings import Settings


class UciSettings(Settings):
    """Play as a UCI engine, in a GUI, a match runner or on Lichess. Commands are read from standard input.

    Players: run:runs/NAME[@VERSION], model:DIR_OR_HUB_ID, http://HOST:PORT#MODEL, stockfish,nodes=N,
    fairy,level=L, random and others; options follow after commas, such as style=fen,temperature=0.5.
    """

    model_config = SettingsConfigDict(env_prefix="UCI_")

    player: str = ""
    """The player. Default: --model."""
    model: str = "models/rook-small"
    """A model directory or Hugging Face id, which is served on this machine: short for --player model:..."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|\d+)$")
    """Where a served model computes: cpu, the index of a GPU, or auto."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of sampled answers and random moves. Default: a new one at every start."""
    server_command: str = ""
    """Command that serves the players model: and run:, set by `rookery uci`."""

    @model_validator(mode="after")
    def _one_player(self) -> "UciSettings":
        if self.player and "model" in self.model_fields_set:
            raise ValueError("give --player or --model, not both")
        return self

    @property
    def spec(self) -> str:
        """The player's spec."""
        return self.player or f"model:{self.model}"
