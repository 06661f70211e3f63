"""Supervised fine-tuning: cross-entropy on the assistant's tokens. Makes the first policy of a run.

It trains all weights or an adapter, and writes a model directory that vLLM and the trainer load.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from rookery.config.finetune import SftSettings
from services.trainer.examples import local_path
from services.trainer.examples.chat_files import ChatExamples, open_chats
from services.trainer.examples.rows import TokenBatch, TokenizedExample
from services.trainer.finetune.loop import finetune, start_run
from services.trainer.finetune.model import (
    answer_logprobs,
    base_dtype,
    load_chat_tokenizer,
    prepare_model,
    stop_at,
)
from services.trainer.finetune.output import export_model, model_manifest, style_of
from services.trainer.finetune.task import FinetuneTask, Sums
from services.trainer.model.base_model import load_causal_lm
from services.trainer.model.lora import continue_adapter, find_adapter
from services.trainer.records.tracking import track


class SftTask(FinetuneTask[SftSettings]):
    """The task of SFT: cross-entropy of each answer token, or of its soft target."""

    name = "sft"

    def weight(self, examples: Sequence[TokenizedExample]) -> int:
        """Returns the number of answer tokens: each has the same weight, whatever its example."""
        return sum(example.answer_tokens for example in examples)

    def sums(self, batch: TokenBatch) -> Sums:
        """Returns the cross-entropy in nats, and with `alternatives_coefficient` also the other loss."""
        logprobs_N = answer_logprobs(self.model, batch)
        cross_entropy = -(batch.weights_N * logprobs_N).sum()
        if not (coefficient := self.settings.alternatives_coefficient):
            return {"loss": cross_entropy}
        alternatives = all_alternatives_loss(batch, logprobs_N)
        return {
            "loss": cross_entropy + coefficient * alternatives,
            "cross_entropy": cross_entropy,
            "alternatives": alternatives,
        }

    def evaluate(self) -> dict[str, float]:
        """Returns the means for held-out tokens, and the perplexity; empty if there are none."""
        if not self.held_out:
            return {}
        means = super().evaluate()
        return means | {"perplexity": math.exp(min(means.get("cross_entropy", means["loss"]), 700.0))}


def all_alternatives_loss(batch: TokenBatch, logprobs_N: torch.Tensor) -> torch.Tensor:
    """Returns -log of the probability of all targets of a token together, summed over the tokens.

    This is the marginal likelihood of a set of answers, any of which is right (Guu et al., arXiv 1704.07926).
    Its gradient moves probability from all other tokens to the targets, and more to those that are likelier.
    """
    token_N = batch.token_N  # there are at most N tokens
    # In log space, because exp underflows below -87. Subtracting the largest changes no gradient.
    highest = torch.full_like(logprobs_N, -math.inf)
    highest_N = highest.scatter_reduce(0, token_N, logprobs_N.detach(), "amax")[token_N]
    mass = torch.zeros_like(logprobs_N).index_add(0, token_N, (logprobs_N - highest_N).exp())
    number = torch.zeros_like(logprobs_N).index_add(0, token_N, torch.ones_like(logprobs_N))
    return -((mass[token_N].log() + highest_N) / number[token_N]).sum()


def run(settings: SftSettings) -> Path:
    """Trains `settings.model` on `settings.data` and returns the directory of the result."""
    folder, settings = start_run(settings)
    adapter = find_adapter(settings.adapter, base=folder) if settings.adapter else None
    tokenizer = load_chat_tokenizer(folder)
    read = partial(
        ChatExamples,
        tokenizer=tokenizer,
        max_length=settings.max_length,
        share_prompts=settings.attention != "eager",
    )
    source = read(open_chats(local_path(settings.data)))
    style = style_of(settings)
    held_out: list[TokenizedExample] = []
    if settings.eval_data:
        eval_source = read(open_chats(local_path(settings.eval_data)), limit=settings.eval_examples)
        held_out = eval_source.examples(range(len(eval_source)))
    loaded = load_causal_lm(folder, dtype=base_dtype(settings), attn_implementation=settings.attention)
    stop_at(source.examples([0])[0].answers[0][-1], loaded, tokenizer)
    model = prepare_model(loaded, settings)
    if adapter:
        continue_adapter(model, adapter)
    with track(settings.out, to=settings.trackers, params=settings.model_dump(mode="json")) as tracker:
        task = SftTask(model, settings, held_out, shares_prompts=source.shares_prompts)
        finetune(task, source, tracker)
        manifest = model_manifest(settings, style=style, answers=source.survey)
        return export_model(model, tokenizer, settings, extra_files=lambda _: manifest)
