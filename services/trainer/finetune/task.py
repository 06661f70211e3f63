"""A model and the loss to train it with, and the means of that loss over examples.

A mean is over all examples, however they are split into forward passes and between processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

import torch

from rookery.config.finetune import FinetuneSettings
from services.trainer.distributed.placement import computes_in_bf16
from services.trainer.distributed.process_group import World
from services.trainer.examples.rows import (
    Row,
    TokenBatch,
    TokenizedExample,
    collate_examples,
    group_rows,
    pack_rows,
    share_prompts,
)

_EVALUATED_AT_ONCE = 64

F = TypeVar("F", bound=FinetuneSettings)

Sums = Mapping[str, torch.Tensor]
"""Scalars summed over a forward pass: `loss`, which is differentiated, and other figures to report."""


class FinetuneTask(ABC, Generic[F]):
    """A model and the loss to train it with. Subclasses define `sums`."""

    name: ClassVar[str]
    world = World()
    """The processes that train together. `finetune` sets it."""
    micro_batch_tokens: int
    """The tokens of a forward pass; 0: any number. If the settings have `auto`, `finetune` measures it."""

    def __init__(
        self,
        model: Any,
        settings: F,
        held_out: Sequence[TokenizedExample] = (),
        *,
        shares_prompts: bool = False,
    ) -> None:
        self.model, self.settings = model, settings
        self.held_out = held_out[: settings.eval_examples]
        self.shares_prompts = shares_prompts
        self.micro_batch_tokens = settings.micro_batch_tokens

    def weight(self, examples: Sequence[TokenizedExample]) -> int:
        """Returns the divisor for the sums of `examples`: here their number."""
        return len(examples)

    @abstractmethod
    def sums(self, batch: TokenBatch) -> Sums:
        """Returns the loss of a forward pass and other figures."""

    def evaluate(self) -> dict[str, float]:
        """Returns the means of `sums` on held-out examples, by name; empty if there are none. No gradients
        are computed."""
        # With shared prompts, those of one prompt are neighbours.
        ordered = self.held_out if self.shares_prompts else sorted(self.held_out, key=attrgetter("length"))
        total, weights = dict[str, float](), 0
        for start in range(0, len(ordered), _EVALUATED_AT_ONCE):
            chunk = ordered[start : start + _EVALUATED_AT_ONCE]
            weight = self.weight(chunk)
            for name, value in means(self, self.sums, chunk, learn=False).items():
                total[name] = total.get(name, 0.0) + value * weight
            weights += weight
        total.pop("tokens", None)
        return {name: value / max(1, weights) for name, value in total.items()}


def means(
    task: FinetuneTask[F],
    sums: Callable[[TokenBatch], Sums],
    examples: Sequence[TokenizedExample],
    *,
    learn: bool,
) -> dict[str, float]:
    """Returns means over `examples`, in as many forward passes as needed, and the tokens computed. Of several
    processes, each computes its share. With `learn`, the gradients of this share are left in the weights."""
    weight = max(1, task.weight(examples))
    rows = rows_of(task, examples, tokens=task.micro_batch_tokens)[task.world.rank :: task.world.size]
    totals: dict[str, float] = {"tokens": 0.0}
    for micro_batch in group_rows(rows, tokens=task.micro_batch_tokens):
        batch = collate_examples(micro_batch, device=next(task.model.parameters()).device)
        summed = compute(task, sums, batch, weight=weight, learn=learn)
        for name, value in summed.items():
            totals[name] = totals.get(name, 0.0) + value.item() / weight
        totals["tokens"] += batch.ids_BT.numel()
    gathered = task.world.gather([totals])
    return {name: sum(part.get(name, 0.0) for part in gathered) for name in dict.fromkeys(chain(*gathered))}


def rows_of(task: FinetuneTask[F], examples: Sequence[TokenizedExample], *, tokens: int) -> list[Row]:
    """Returns the rows of `examples`, of which those that share a prompt have at most `tokens` if not 0."""
    if task.shares_prompts:
        examples = share_prompts(examples, tokens=tokens)
    return pack_rows(examples, row_tokens=task.settings.row_tokens)


def compute(
    task: FinetuneTask[F],
    sums: Callable[[TokenBatch], Sums],
    batch: TokenBatch,
    *,
    weight: float,
    learn: bool,
) -> Sums:
    """Returns `sums` of a forward pass. With `learn`, adds the gradient of its loss / `weight`."""
    device = batch.ids_BT.device
    in_bf16 = computes_in_bf16(task.settings.precision, device)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=in_bf16)
    with torch.set_grad_enabled(learn), autocast:
        summed = sums(batch)
    if learn:
        (summed["loss"] / weight).backward()
    return summed
