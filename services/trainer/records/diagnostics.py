"""Figures of a step's speed, memory and answers, by their names in metrics.jsonl."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rookery.trace import TraceGroup
from services.trainer.records import memory
from services.trainer.records.flops import Peak, Shape, shape_of, step_flops

COMPONENT = "component_"


def components(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns the mean of each component of the reward over all completions; a missing one counts as 0.

    So the means add up to the mean reward if each verdict's components add up to its reward.
    """
    verdicts = [trace.verdict for group in groups for trace in group.traces]
    names = sorted({name for verdict in verdicts for name in verdict.components})
    return {
        COMPONENT + name: statistics.fmean(verdict.components.get(name, 0.0) for verdict in verdicts)
        for name in names
    }


def lengths(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns lengths of completions and prompts in tokens. The percentile uses the nearest rank."""
    completions = sorted(len(trace.completion.token_ids) for group in groups for trace in group.traces)
    return {
        "completion_length": statistics.fmean(completions),
        "completion_length_p95": completions[-(-95 * len(completions) // 100) - 1],
        "completion_length_max": completions[-1],
        "prompt_length": statistics.fmean(len(group.prompt_token_ids) for group in groups),
    }


class Meter:
    """Measures the memory and speed of one model's training, step by step."""

    def __init__(self, model: Any, device: torch.device, *, devices: int = 1) -> None:
        self._device = device
        self._shape: Shape = shape_of(model)
        self._peak = Peak(device)
        self._devices = devices
        self._memory: dict[str, float] = {}

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measures the memory of the work inside the block."""
        with memory.levels(self._device) as self._memory:
            yield

    def row(
        self, groups: Sequence[TraceGroup], *, tokens: int, train_s: float, passes: int = 1
    ) -> dict[str, float]:
        """Returns the figures of the step just measured. `tokens` carried loss, in `passes` passes each."""
        shapes = [(len(g.prompt_token_ids), [len(t.completion.token_ids) for t in g.traces]) for g in groups]
        flops = passes * step_flops(self._shape, shapes)
        return {
            "tokens_per_s": tokens / train_s,
            "tflops": flops / 1e12,
            "mfu": flops / train_s / (self._peak.flops() * self._devices),
            **self._memory,
        }
