"""Runs two training steps of one configuration on synthetic groups of maximum length; measures the memory.

The steps use the run's objective and a separate optimizer. Afterwards weights, gradients and random numbers
are the same as before, bit by bit.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from rookery.config.trainer import TrainerSettings
from rookery.trace import (
    Completion,
    Message,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    Prompt,
    Sampling,
    Trace,
    TraceGroup,
    Verdict,
)
from services.trainer.model.policy import Policy
from services.trainer.records.memory import (
    available_bytes,
    is_out_of_memory,
    release_cached,
    release_free,
    resident_bytes,
    watch,
)
from services.trainer.training import optimizer as adam
from services.trainer.training.step import RunningState, train_step

TARGET = 0.85
"""Share of the available memory to use. The rest is for fragmentation and for less regular steps."""

STEPS = 2
"""The second step holds gradients, activations and Adam's moments at once; the first has no moments yet."""


Result: TypeAlias = Literal["fits", "too large", "out of memory"]


@dataclass(frozen=True, slots=True)
class Profile:
    """The measurement of `positions` rows with `group` completions each in one forward pass.

    In bytes: `parameters` of the whole model, `gradients` and `adam` of the trained part, `activations`
    everything else at the peak of the steps. `peak` is the total of the process (of torch, on a GPU).
    """

    positions: int
    group: int
    row_tokens: int
    parameters: int
    gradients: int
    adam: int
    activations: int
    peak: int
    available: int
    tokens_per_s: float
    result: Result

    @property
    def tokens(self) -> int:
        """The tokens of one forward pass."""
        return self.positions * self.row_tokens

    @property
    def share(self) -> float:
        """The peak as a share of the available memory."""
        return self.peak / self.available


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The shape of every group of a probe: completions, and tokens of the prompt and of each completion."""

    group: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def sequence_tokens(self) -> int:
        """The tokens of the prompt and one completion."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def row_tokens(self) -> int:
        """The tokens of the group in one row."""
        return self.prompt_tokens + self.group * self.completion_tokens


def probe(policy: Policy, settings: TrainerSettings, shape: GroupShape, *, positions: int) -> Profile:
    """Runs the configuration with one forward pass per step and measures its memory."""
    device = policy.device
    row_tokens = shape.row_tokens
    settings = settings.model_copy(
        update={
            "micro_batch_tokens": positions * row_tokens,
            "row_tokens": row_tokens,
            "ppo_epochs": 1,
            "ppo_mini_batches": 1,  # all positions in one pass
        }
    )
    groups = [_group(number, shape) for number in range(positions)]
    available = available_bytes(device)
    with _restoring(policy) as copy_bytes:
        # What allocators keep from earlier probes must not count for this one.
        gc.collect()
        release_cached()
        release_free()
        on_gpu = device.type == "cuda"
        bytes_before = (torch.cuda.memory_allocated(device) if on_gpu else resident_bytes()) - copy_bytes
        optimizer = adam.build(
            policy.parameters, lr=settings.lr, bits=settings.adam_bits, offload=settings.offload
        )
        result: Result = "fits"
        step_s = float("inf")
        with watch(device) as peak:
            try:
                step_s = _steps(policy, optimizer, groups, settings)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                result = "out of memory"
        gradients = sum(p.numel() * p.element_size() for p in policy.parameters)
        tensors = [value for state in optimizer.state.values() for value in state.values()]
        moments = sum(value.numel() * value.element_size() for value in tensors if torch.is_tensor(value))
    peak_bytes = peak.bytes - copy_bytes
    if result == "fits" and peak_bytes > TARGET * available:
        result = "too large"
    return Profile(
        positions=positions,
        group=shape.group,
        row_tokens=row_tokens,
        parameters=sum(p.numel() * p.element_size() for p in policy.model.parameters()),
        gradients=gradients,
        adam=moments,
        activations=max(0, peak_bytes - bytes_before - gradients - moments),
        peak=peak_bytes,
        available=available,
        tokens_per_s=positions * row_tokens / step_s,
        result=result,
    )


def _steps(
    policy: Policy, optimizer: torch.optim.Optimizer, groups: list[TraceGroup], settings: TrainerSettings
) -> float:
    """Runs the steps and returns the seconds of the last one."""
    started = 0.0
    for step in range(STEPS):
        started = time.perf_counter()
        train_step(policy, optimizer, groups, step=step, settings=settings, state=RunningState())
    return time.perf_counter() - started


@contextmanager
def _restoring(policy: Policy) -> Iterator[int]:
    """Restores weights and random numbers afterwards. Yields the bytes on the device that this takes."""
    copies = [parameter.detach().to("cpu", copy=True) for parameter in policy.parameters]
    devices = [policy.device] if policy.device.type == "cuda" else []
    copy_bytes = 0 if devices else sum(value.numel() * value.element_size() for value in copies)
    try:
        with torch.random.fork_rng(devices=devices):
            yield copy_bytes
    finally:
        with torch.no_grad():
            for parameter, value in zip(policy.parameters, copies, strict=True):
                parameter.copy_(value)
                parameter.grad = None


def _group(number: int, shape: GroupShape) -> TraceGroup:
    """Returns a group of the maximum length. Its rewards differ, so that it has a gradient."""
    fen = "8/8/8/8/8/8/8/8 w - - 0 1"
    traces = tuple(
        Trace(
            f"{number}-{slot}",
            Completion("", (1,) * shape.completion_tokens, (-1.0,) * shape.completion_tokens, "stop", slot),
            Verdict(reward=float(slot), outcome=Outcome.LEGAL, reward_version="probe"),
        )
        for slot in range(shape.group)
    )
    return TraceGroup(
        id=f"probe-{number}",
        run="probe",
        position=Position(f"probe-{number}", fen, 0, Phase.OPENING, "probe"),
        prompt=Prompt("probe", (Message("user", ""),), fen),
        prompt_token_ids=(1,) * shape.prompt_tokens,
        policy=PolicyVersion(0, "0" * 64),
        base_model="probe",
        sampling=Sampling(max_tokens=shape.completion_tokens),
        traces=traces,
        created_at=0.0,
    )
