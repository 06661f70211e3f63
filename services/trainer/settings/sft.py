"""Settings of supervised fine-tuning."""

from pathlib import Path

from pydantic_settings import SettingsConfigDict

from services.trainer.settings.fitting import FitSettings


class SftSettings(FitSettings):
    """Supervised fine-tuning: the last answer of a chat is learned, given all before it."""

    model_config = SettingsConfigDict(env_prefix="SFT_")

    data: Path
    """JSON lines of {"messages": [...]}, the assistant last; or Parquet, with columns messages, or prompt
    and answer, or prompt and chosen."""
    eval_data: Path | None = None
    """Examples of the same form to evaluate on: their loss and perplexity go into metrics.jsonl."""
