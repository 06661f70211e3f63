"""`python -m services.trainer.gpt2 --model DIR --prompt TEXT`: continues a text with a RookWorld model.

Writes one JSON object per completion: its text, its log-probability, and whether it has an end token.
"""

import json
import sys
from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveInt

from rookery.command_line import main_of
from rookery.rookworld import END_OF_TEXT
from rookery.settings import Settings


class GenerateSettings(Settings, env_prefix="GENERATE_"):
    """Continue a text with a GPT-2 model."""

    model: Path
    """A directory or a Hugging Face id."""
    prompt: str
    """The text to continue, as in "P: <fen> "."""
    count: PositiveInt = 1
    """Number of completions."""
    max_tokens: PositiveInt = 144
    """Maximum length of a completion, in tokens. The end-of-text token ends one, too."""
    temperature: float = Field(default=0.7, ge=0)
    """0 takes the likeliest token."""
    top_k: NonNegativeInt = 0
    """Sample among this many of the likeliest tokens; 0 among all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample among the fewest tokens that together have at least this probability."""
    seed: int = 0
    """Completion i is sampled with seed + i."""


def run(settings: GenerateSettings) -> None:
    """Prints the completions."""
    from rookery.hub import model_folder
    from rookery.trace import Sampling
    from services.trainer.gpt2 import loader
    from services.trainer.gpt2.generate import generate
    from services.trainer.gpt2.loader import load_tokenizer

    folder = model_folder(str(settings.model))
    tokenizer = load_tokenizer(folder)
    end = tokenizer.token_to_id(END_OF_TEXT)
    [rows] = generate(
        loader.load(folder),
        [tokenizer.encode(settings.prompt).ids],
        count=settings.count,
        sampling=Sampling(settings.temperature, settings.top_p, settings.top_k, settings.max_tokens),
        stop=() if end is None else (end,),
        seed=settings.seed,
    )
    for row in rows:
        text = tokenizer.decode(row.token_ids, skip_special_tokens=True)
        line = {"text": text, "logprob": round(sum(row.logprobs), 4), "ended": row.stopped}
        sys.stdout.write(json.dumps(line) + "\n")


main = main_of("gpt2", __name__)
