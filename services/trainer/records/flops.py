"""Useful floating-point operations of a training step, and their share of the device's peak (MFU).

A matrix of P weights costs 2P operations per token forward, 2P for the gradient of its input and 2P for its
own gradient: 6P in all (Kaplan et al., arXiv 2001.08361, section 2.1). A frozen matrix under LoRA has no
gradient of its own: 4P. Attention costs 4 L W operations per token forward for each token that it attends to
(scores and values, L layers, W = heads x head size) and twice that backward (PaLM, arXiv 2204.02311,
appendix B). Only tokens really attended to are counted, not masked ones. Recomputation (checkpointing, chunks
of the head), the pass of a reference model, padding, softmax and norms are not counted: this is the
utilisation of the model, not of the hardware.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.batches.rows import carries_loss
from services.trainer.model.base_model import experts_of
from services.trainer.model.policy import Policy
from services.trainer.records.memory import StepMemory

PEAK_FLOPS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H800": 989e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "A10": 125e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
"""Dense bfloat16 operations per second with float32 accumulation, by part of the device's name. The first
match counts.

From NVIDIA's data sheets, halved if they include sparsity.
"""


_REMEASURE_STEPS = 10


@dataclass(frozen=True, slots=True)
class WeightCounts:
    """Numbers of weights that multiply activations: `frozen` and `trained` in the body, and in the head.
    `attention` is layers x heads x head size."""

    frozen: int
    trained: int
    head: int
    head_trained: bool
    attention: int


def count_weights(model: Any) -> WeightCounts:
    """Counts the weights of a causal LM, with or without an adapter. Embeddings are not multiplied. Of the
    experts of a layer, those count with which one token is multiplied."""
    config, head = model.config, model.get_output_embeddings().weight
    not_counted = {id(head), *(id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding))}
    matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in not_counted]
    heads = int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    sizes = {False: 0, True: 0}
    for p in matrices:
        # Two weights of 4 bits are one number; `quant_state` has the shape of their matrix.
        sizes[p.requires_grad] += math.prod(getattr(getattr(p, "quant_state", None), "shape", p.shape))
    for p in experts_of(model).values():
        sizes[p.requires_grad] += p[0].numel() * int(getattr(config, "num_experts_per_tok", 1))
    return WeightCounts(
        frozen=sizes[False],
        trained=sizes[True],
        head=head.numel(),
        head_trained=head.requires_grad,
        attention=int(config.num_hidden_layers) * heads * width,
    )


def step_flops(weights: WeightCounts, groups: Iterable[tuple[int, Sequence[int]]]) -> float:
    """Returns the operations of a forward and backward pass over groups.

    A group is the prompt's length and the completions' lengths. The prompt is computed once per group, as in
    `micro_batches.collate`; the head computes completion tokens only.

    >>> body = WeightCounts(frozen=100, trained=10, head=0, head_trained=False, attention=1)
    >>> step_flops(body, [(2, [1])])  # 2 input tokens; one sees itself, the other two: 3
    956.0
    """
    total = 0.0
    for prompt, completions in groups:
        inputs = [length - 1 for length in completions if length]
        tokens = prompt + sum(inputs)
        attended = _triangle(prompt) + sum(prompt * length + _triangle(length) for length in inputs)
        total += tokens * (4 * weights.frozen + 6 * weights.trained) + 12 * weights.attention * attended
        total += sum(completions) * (6 if weights.head_trained else 4) * weights.head
    return total


class PeakFlops:
    """Operations per second of a device: from the data sheet of a known GPU, else measured. Other processes
    on the machine can slow a measurement down, so it is repeated, and the best one is used."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        listed = device.type == "cuda" and dtype == torch.bfloat16
        name = torch.cuda.get_device_name(device) if listed else ""
        self._listed = next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)
        self._measured = 0.0
        self._calls = 0

    def flops(self) -> float:
        """Returns the best figure known so far."""
        if self._listed:
            return self._listed
        if self._calls % _REMEASURE_STEPS == 0:
            self._measured = max(self._measured, _measured_flops(self._device, self._dtype))
        self._calls += 1
        return self._measured


class SpeedMeter:
    """Measures the memory and speed of one model's training, step by step."""

    def __init__(self, policy: Policy, settings: TrainerSettings, *, devices: int = 1) -> None:
        self._step_memory = StepMemory(policy.device)
        self._weights: WeightCounts = count_weights(policy.model)
        self._peak = PeakFlops(policy.device, torch.bfloat16 if policy.in_bf16 else torch.float32)
        self._devices = devices
        self._passes = settings.ppo_epochs if settings.objective == "ppo" else 1
        self._mask_truncated = settings.mask_truncated
        self._memory: dict[str, float] = {}

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measures the memory of the work inside the block."""
        with self._step_memory.step() as self._memory:
            yield

    def row(self, groups: Sequence[TraceGroup], *, tokens: int, train_s: float) -> dict[str, float]:
        """Returns the figures of the step just measured. `tokens` carried loss, in each pass over them."""
        lengths = dict[tuple[str, tuple[int, ...]], list[int]]()
        for group in groups:
            for turn in group.turns:
                if carries_loss(turn, mask_truncated=self._mask_truncated):
                    prompt = group.id, group.prompt_tokens_of(turn)
                    lengths.setdefault(prompt, []).append(len(turn.completion.token_ids))
        shapes = [(len(prompt), completions) for (_, prompt), completions in lengths.items()]
        flops = self._passes * step_flops(self._weights, shapes)
        return {
            "tokens_per_s": tokens / train_s,
            "tflops": flops / 1e12,
            "mfu": flops / train_s / (self._peak.flops() * self._devices),
            "devices": self._devices,
            **self._memory,
        }


def _measured_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Returns operations per second in the fastest of ten matrix products."""
    size = 4096 if device.type == "cuda" else 512
    best_s = math.inf
    with torch.no_grad():
        matrix = torch.ones(size, size, device=device, dtype=dtype)
        for _ in range(10):
            started = time.perf_counter()
            # Reading a number waits until the device is done.
            (matrix @ matrix)[0, 0].item()
            best_s = min(best_s, time.perf_counter() - started)
    return 2 * size**3 / best_s


def _triangle(length: int) -> float:
    return length * (length + 1) / 2
