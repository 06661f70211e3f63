"""Supervised fine-tuning: cross-entropy on the assistant's tokens. Makes the first policy of a run.

It trains all weights or an adapter, and writes a model directory that vLLM and the trainer load.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from services.trainer.examples import local_path
from services.trainer.examples.chat_files import ChatExamples, open_chats
from services.trainer.examples.rows import Example, TokenBatch
from services.trainer.finetune.loop import FinetuneTask, Sums, start_run, train
from services.trainer.finetune.model import answer_logprobs, base_dtype, load_tokenizer, prepare_model
from services.trainer.finetune.output import export
from services.trainer.model.base_model import load_causal_lm
from services.trainer.records.tracking import track
from services.trainer.settings import SftSettings


class SftTask(FinetuneTask[SftSettings]):
    """The task of SFT: cross-entropy of each answer token, or of its soft target."""

    name = "sft"

    def weight(self, examples: Sequence[Example]) -> int:
        """Returns the number of answer tokens: each has the same weight, whatever its example."""
        return sum(example.answer_tokens for example in examples)

    def sums(self, batch: TokenBatch) -> Sums:
        """Returns the cross-entropy in nats."""
        return {"loss": -(batch.weights_N * answer_logprobs(self.model, batch)).sum()}

    def evaluate(self) -> dict[str, float]:
        """Returns the mean cross-entropy of held-out tokens and its exponential; empty if there are none."""
        if not self.held_out:
            return {}
        loss = super().evaluate()["loss"]
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def run(settings: SftSettings) -> Path:
    """Trains `settings.model` on `settings.data` and returns the directory of the result."""
    folder, settings = start_run(settings)
    tokenizer = load_tokenizer(folder)
    source = ChatExamples(open_chats(local_path(settings.data)), tokenizer, max_length=settings.max_length)
    held_out: list[Example] = []
    if settings.eval_data:
        shown = ChatExamples(
            open_chats(local_path(settings.eval_data)),
            tokenizer,
            max_length=settings.max_length,
            limit=settings.eval_examples,
        )
        held_out = shown.examples(range(len(shown)))
    loaded = load_causal_lm(folder, dtype=base_dtype(settings), attn_implementation=settings.attention)
    model = prepare_model(loaded, settings)
    with track(settings.out, wanted=settings.mlflow, params=settings.model_dump(mode="json")) as tracker:
        train(SftTask(model, settings, held_out), source, tracker)
        return export(model, tokenizer, settings)
