"""The training loop on examples, the same for every course: order, rows, gradient, Adam, evaluation.

A step's loss is a mean over the whole step, however it is split into micro-batches, so the gradient is that
of one pass. A stopped run resumes from its last checkpoint and ends with the same bytes as one that was not
stopped.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from rookery.errors import InvalidInput
from services.trainer import optimizer as adam
from services.trainer.fitting import checkpoint
from services.trainer.fitting.interruption import heeded
from services.trainer.fitting.layout import Example, Laid, lay, micro_batches, rows
from services.trainer.fitting.log import Log
from services.trainer.fitting.order import Source, batches
from services.trainer.fitting.setup import fingerprint
from services.trainer.records.memory import MIB, levels, release_free, resident_bytes
from services.trainer.records.tracking import Tracker
from services.trainer.settings import FitSettings

logger = logging.getLogger(__name__)

_GAPS_MIB = 1024
"""Growth of the process after which the allocator's free memory is returned to the system."""

Sums = Mapping[str, torch.Tensor]
"""Scalars summed over a forward pass: `loss`, which is differentiated, and other figures to report."""


class Course(Protocol):
    """A model and the loss to train it with."""

    name: str
    model: Any

    def weight(self, examples: Sequence[Example]) -> int:
        """Returns the divisor for the sums of `examples`: their answer tokens, or their number."""

    def sums(self, laid: Laid) -> Sums:
        """Returns the loss of a forward pass and other figures."""

    def evaluate(self) -> dict[str, float]:
        """Returns figures on held-out examples, by name; empty if there are none."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Runs examples through the model: lays them out and computes the sums in the chosen precision."""

    course: Course
    settings: FitSettings
    sums: Callable[[Laid], Sums]

    @classmethod
    def of(cls, course: Course, settings: FitSettings) -> "Pass":
        compiled = torch.compile(course.sums, dynamic=True) if settings.compile else course.sums
        return cls(course, settings, compiled)

    def means(self, examples: Sequence[Example], *, learn: bool) -> dict[str, float]:
        """Returns means over `examples`, in as many forward passes as needed, and the tokens computed.

        With `learn`, the gradients are left in the weights.
        """
        weight = max(1, self.course.weight(examples))
        device = next(self.course.model.parameters()).device
        laid_rows = rows(examples, row_tokens=self.settings.row_tokens)
        totals: dict[str, float] = {"tokens": 0.0}
        for micro in micro_batches(laid_rows, tokens=self.settings.micro_batch_tokens):
            laid = lay(micro, device=device)
            with torch.set_grad_enabled(learn), _autocast(device, enabled=self.settings.bf16):
                sums = self.sums(laid)
            if learn:
                (sums["loss"] / weight).backward()
            for name, value in sums.items():
                totals[name] = totals.get(name, 0.0) + value.item() / weight
            totals["tokens"] += laid.ids_BT.numel()
        return totals


def fit(course: Course, source: Source, settings: FitSettings, tracker: Tracker) -> None:
    """Trains `course.model` on `source` for `settings.steps`.

    Raises:
        InvalidInput: the checkpoint has other settings or data, or the gradient is not finite.
        SystemExit: a signal asked to stop. The step was finished and its checkpoint written.
    """
    weights = checkpoint.trained(course.model)
    optimizer = adam.build(
        list(weights.values()),
        lr=settings.lr,
        bits=settings.adam_bits,
        betas=(0.9, 0.98),
        weight_decay=settings.weight_decay,
    )
    identity = fingerprint(settings)
    step = checkpoint.restore(settings.out, weights, optimizer, fingerprint=identity)
    settings.write_resolved(settings.out)
    logger.info(
        "%s: %d examples, %d weights, %d steps of %d from step %d",
        course.name, len(source), sum(weight.numel() for weight in weights.values()),
        settings.steps, settings.batch_size, step,
    )  # fmt: skip
    way = Pass.of(course, settings)
    supply = batches(source, batch_size=settings.batch_size, seed=settings.seed, skip=step)
    device = next(course.model.parameters()).device
    least_mib = 0.0  # resident after free memory was last returned
    with (
        Log(course.name, settings.out, start=step, steps=settings.steps) as log,
        heeded() as asked,
    ):
        while step < settings.steps:
            started = time.perf_counter()
            with levels(device) as memory:
                measured = _step(way, optimizer, next(supply), step=step)
            step += 1
            step_s = time.perf_counter() - started
            speed = {"step_s": step_s, "tokens_per_s": measured["tokens"] / step_s}
            row: dict[str, Any] = {"step": step, **measured, **speed, **memory}
            if step % settings.eval_every == 0 or step == settings.steps:
                row |= {f"eval_{name}": value for name, value in course.evaluate().items()}
            log.write(row)
            tracker.log(row)
            if memory["resident_mib"] > least_mib + _GAPS_MIB:
                release_free()
                least_mib = resident_bytes() / MIB
            if step % settings.save_every == 0 or step == settings.steps or asked.number:
                checkpoint.save(settings.out, weights, optimizer, step=step, fingerprint=identity)
            if asked.number:
                logger.info(
                    "stopped after step %d of %d: the same command goes on from there", step, settings.steps
                )
                raise SystemExit(128 + asked.number)


def mean_over(
    course: Course, examples: Sequence[Example], settings: FitSettings, *, batch: int = 64
) -> dict[str, float]:
    """Returns the means of the course's sums over `examples`, without gradients."""
    way = Pass(course, settings, course.sums)
    ordered = sorted(examples, key=lambda example: example.length)
    total, weights = dict[str, float](), 0
    for start in range(0, len(ordered), batch):
        here = ordered[start : start + batch]
        weight = course.weight(here)
        for name, value in way.means(here, learn=False).items():
            total[name] = total.get(name, 0.0) + value * weight
        weights += weight
    total.pop("tokens", None)
    return {name: value / max(1, weights) for name, value in total.items()}


def _step(
    way: Pass, optimizer: torch.optim.Optimizer, examples: Sequence[Example], *, step: int
) -> dict[str, float]:
    settings = way.settings
    lr = settings.lr * adam.lr_factor("cosine", step=step, steps=settings.steps, warmup=settings.warmup_steps)
    adam.set_lr(optimizer, lr)
    means = way.means(examples, learn=True)
    norm = torch.nn.utils.clip_grad_norm_(
        checkpoint.trained(way.course.model).values(), settings.max_grad_norm
    )
    if not torch.isfinite(norm):
        raise InvalidInput(
            f"step {step}: loss {means['loss']} and gradient norm {norm.item()} are no numbers"
        )
    optimizer.step()
    optimizer.zero_grad()
    return means | {"grad_norm": norm.item(), "lr": lr}


def _autocast(device: torch.device, *, enabled: bool) -> contextlib.AbstractContextManager[None]:
    context: contextlib.AbstractContextManager[None] = torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=enabled
    )
    return context
