"""Settings of the search for the largest batch."""

from pathlib import Path

from pydantic import Field, PositiveInt
from pydantic_settings import SettingsConfigDict

from services.trainer.settings.run import TrainerSettings


class AutobatchSettings(TrainerSettings):
    """Measure which batch of positions x completions fits into memory in one forward pass.

    Runs real steps of the model with batches from (2, G) upwards, and stops near 85% of the available memory.
    Accepts all settings of the trainer, and ignores those that do not affect memory.
    """

    model_config = SettingsConfigDict(env_prefix="AUTOBATCH_")

    run_dir: Path = Path()
    """Folder for memory_profiles.json."""
    group_size: int = Field(default=4, ge=2)
    """Completions per position."""
    prompt_tokens: PositiveInt = 128
    """Length of a prompt, in tokens."""
    completion_tokens: PositiveInt = 128
    """Length of a completion, in tokens."""
    most_positions: PositiveInt = 128
    """Largest number of positions to try."""
