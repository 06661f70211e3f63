"""Settings of supervised fine-tuning."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic_settings import SettingsConfigDict

from services.trainer.settings.fitting import FitSettings, Place
from services.trainer.settings.scoped import When


class SftSettings(FitSettings):
    """Supervised fine-tuning: the last answer of a chat is learned, given all before it."""

    model_config = SettingsConfigDict(env_prefix="SFT_")
    reading: ClassVar[Mapping[str, When]] = {
        **FitSettings.reading,
        "eval_every": When("eval_data", but=(None,)),
        "eval_examples": When("eval_data", but=(None,)),
        "attention": When("row_tokens", (0,)),
    }

    data: Place
    """JSON lines of {"messages": [...]} that end with the assistant's; or Parquet with the columns messages,
    or prompt and answer, or prompt and chosen. A path, or s3://bucket/key."""
    eval_data: Place | None = None
    """Examples in the same format for evaluation. Their loss and perplexity are written to metrics.jsonl."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """sdpa: torch's fused kernel. eager: plain matrix products, which are faster on a CPU for short examples,
    but need memory proportional to the square of the length."""
