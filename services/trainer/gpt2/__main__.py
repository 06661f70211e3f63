"""`python -m services.trainer.gpt2 --model DIR --prompt TEXT`: what a model of RookWorld's writes.

One JSON object a completion: its text, its log-probability, and whether it ended by itself.
"""

import json
import sys

from rookery.errors import RookeryError
from rookery.rookworld import END_OF_TEXT
from rookery.settings import fail
from services.trainer.gpt2.settings import GenerateSettings


def main(argv: list[str]) -> int:
    try:
        settings = GenerateSettings.parse(argv, prog="python -m services.trainer.gpt2")
        _generate(settings)
    except RookeryError as error:
        return fail(error)
    return 0


def _generate(settings: GenerateSettings) -> None:
    from rookery.hub import model_folder
    from services.trainer.gpt2 import loader
    from services.trainer.gpt2.generate import generate
    from services.trainer.gpt2.sampling import Sampling
    from services.trainer.gpt2.tokenizer import load_tokenizer

    folder = model_folder(str(settings.model))
    tokenizer = load_tokenizer(folder)
    end = tokenizer.token_to_id(END_OF_TEXT)
    [rows] = generate(
        loader.load(folder),
        [tokenizer.encode(settings.prompt).ids],
        max_tokens=settings.max_tokens,
        count=settings.count,
        sampling=Sampling(settings.temperature, settings.top_k, settings.top_p),
        stop=() if end is None else (end,),
        seed=settings.seed,
    )
    for row in rows:
        text = tokenizer.decode(row.token_ids, skip_special_tokens=True)
        line = {"text": text, "logprob": round(sum(row.logprobs), 4), "ended": row.stopped}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
