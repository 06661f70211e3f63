"""Settings of the search for the largest batch."""

from pathlib import Path

from pydantic import Field, PositiveInt
from pydantic_settings import SettingsConfigDict

from services.trainer.settings.run import TrainerSettings


class AutobatchSettings(TrainerSettings):
    """Measure which batch of positions x completions fits into memory in one forward pass.

    Runs real steps of the model from (2, G) upwards; stops near 85% of what is available. What the
    trainer may be told, this may be told too; what has nothing to do with memory is passed over.
    """

    model_config = SettingsConfigDict(env_prefix="AUTOBATCH_")

    run_dir: Path = Path()
    """Receives memory_profiles.json."""
    group_size: int = Field(default=4, ge=2)
    """Completions of each position."""
    prompt_tokens: PositiveInt = 128
    """Longest prompt."""
    completion_tokens: PositiveInt = 128
    """Longest completion."""
    most_positions: PositiveInt = 128
    """Where the search ends."""
