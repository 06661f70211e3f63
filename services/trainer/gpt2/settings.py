"""Settings of `python -m services.trainer.gpt2`. Light: no torch."""

from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveInt

from rookery.settings import Settings


class GenerateSettings(Settings):
    """Goes on with a text, by a GPT-2 of a directory."""

    model: Path
    """A directory or a Hugging Face id."""
    prompt: str
    """What to go on with, as in "P: <fen> "."""
    count: PositiveInt = 1
    """Completions."""
    max_tokens: PositiveInt = 144
    """Longest completion, in tokens; the end-of-text token ends one, too."""
    temperature: float = Field(default=0.7, ge=0)
    """0 takes the likeliest token."""
    top_k: NonNegativeInt = 0
    """Draws among so many likeliest tokens; 0: among all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draws among the fewest tokens that are so likely together."""
    seed: int = 0
    """Completion i is drawn with seed + i."""
