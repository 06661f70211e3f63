"""Settings of supervised fine-tuning."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic_settings import SettingsConfigDict

from services.trainer.settings.fitting import FitSettings
from services.trainer.settings.scoped import When


class SftSettings(FitSettings):
    """Supervised fine-tuning: the last answer of a chat is learned, given all before it."""

    model_config = SettingsConfigDict(env_prefix="SFT_")
    reading: ClassVar[Mapping[str, When]] = {
        **FitSettings.reading,
        "eval_every": When("eval_data", but=(None,)),
        "eval_examples": When("eval_data", but=(None,)),
    }

    data: Path
    """JSON lines of {"messages": [...]}, the assistant last; or Parquet, with columns messages, or prompt
    and answer, or prompt and chosen."""
    eval_data: Path | None = None
    """Examples of the same form to evaluate on: their loss and perplexity go into metrics.jsonl."""
