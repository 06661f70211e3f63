"""Measures the memory that training takes, and computes how many tokens fit into one forward pass.

Two steps run with a separate optimizer. Afterwards weights, gradients and random numbers are the same as
before, bit by bit. Only activations grow with the tokens of a pass, and no faster than these.
"""

import gc
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import torch

from rookery.errors import InvalidInput, SetupError
from rookery.files import replace_file
from services.trainer.records.memory import (
    available_bytes,
    is_out_of_memory,
    release_cached,
    release_free,
    resident_bytes,
    watch,
)
from services.trainer.versions.files import read_object

logger = logging.getLogger(__name__)

FILE = "memory_profiles.json"

SHARES = {"cuda": 0.85, "cpu": 0.5}
"""Share of the free memory to use. On a GPU the rest is for fragmentation and less regular steps. A machine's
memory is also that of servers and engines, and larger passes are hardly faster on a CPU."""

STEPS = 2
"""The second step holds gradients, activations and Adam's moments at once; the first has no moments yet."""

GIB = 1 << 30

Result: TypeAlias = Literal["fits", "too large", "out of memory", "computed"]


@dataclass(frozen=True, slots=True)
class Profile:
    """The measurement of `positions` rows with `group` completions each in one forward pass.

    In bytes: `parameters` of the whole model, `gradients` and `adam` of the trained part, `activations`
    everything else at the peak of the steps. `peak` is the total of the process (of torch, on a GPU), `limit`
    the peak allowed by `SHARES`, and `available` what the process could use.
    """

    positions: int
    group: int
    row_tokens: int
    parameters: int
    gradients: int
    adam: int
    activations: int
    peak: int
    limit: int
    available: int
    tokens_per_s: float
    result: Result

    @property
    def tokens(self) -> int:
        return self.positions * self.row_tokens

    @property
    def share(self) -> float:
        """The peak as a share of the available memory."""
        return self.peak / self.available

    @property
    def allowed(self) -> int:
        """How many positions fit below the limit, computed from the activations of these."""
        room = self.limit - (self.peak - self.activations)
        return room * self.positions // max(1, self.activations)

    def of(self, positions: int) -> Self:
        """Returns the profile computed for another number of positions."""
        activations = self.activations * positions // self.positions
        peak = self.peak - self.activations + activations
        return replace(self, positions=positions, activations=activations, peak=peak, result="computed")


def computed(profile: Profile, *, most: int) -> Profile:
    """Returns the profile of the largest pass that fits, of at most `most` positions but no fewer than one.
    Raises `SetupError` if `profile` ran out of memory."""
    if profile.result == "out of memory":
        raise too_little(profile)
    positions = min(most, profile.allowed)
    if positions < 1:
        logger.warning(
            "a pass of %d tokens has a peak of %.2f GiB, more than the %.2f GiB that the free memory allows",
            profile.row_tokens, profile.peak / GIB, profile.limit / GIB,
        )  # fmt: skip
    return profile.of(max(1, positions))


def too_little(profile: Profile) -> SetupError:
    """Returns the error that not even one row fits."""
    return SetupError(
        f"not even one row of {profile.row_tokens} tokens fits into {profile.available / GIB:.2f} GiB: "
        "lower the length of a row, or turn on --gradient-checkpointing"
    )


def measure(
    step: Callable[[torch.optim.Optimizer, int], object],
    *,
    model: Any,
    parameters: Sequence[torch.nn.Parameter],
    optimizer: Callable[[], torch.optim.Optimizer],
    positions: int,
    group: int,
    row_tokens: int,
) -> Profile:
    """Runs `step` with an optimizer of `parameters` and the number of the step, and measures its memory."""
    device = parameters[0].device
    # What allocators keep from earlier work must not count for this one.
    gc.collect()
    release_cached()
    release_free()
    used = torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_bytes()
    available = available_bytes(device)
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if device.type == "cpu" else 1
    limit = used + int(SHARES[device.type] * (available - used)) // processes
    with _restoring(parameters) as copy_bytes:
        adam = optimizer()
        result: Result = "fits"
        step_s = float("inf")
        with watch(device) as peak:
            try:
                step_s = _last_step_s(step, adam)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                result = "out of memory"
        gradients = sum(p.numel() * p.element_size() for p in parameters)
        tensors = [value for state in adam.state.values() for value in state.values()]
        moments = sum(value.numel() * value.element_size() for value in tensors if torch.is_tensor(value))
    peak_bytes = peak.bytes - copy_bytes
    if result == "fits" and peak_bytes > limit:
        result = "too large"
    return Profile(
        positions=positions,
        group=group,
        row_tokens=row_tokens,
        parameters=sum(p.numel() * p.element_size() for p in model.parameters()),
        gradients=gradients,
        adam=moments,
        activations=max(0, peak_bytes - used - gradients - moments),
        peak=peak_bytes,
        limit=limit,
        available=available,
        tokens_per_s=positions * row_tokens / step_s,
        result=result,
    )


def _last_step_s(
    step: Callable[[torch.optim.Optimizer, int], object], optimizer: torch.optim.Optimizer
) -> float:
    started = 0.0
    for number in range(STEPS):
        started = time.perf_counter()
        step(optimizer, number)
    return time.perf_counter() - started


@contextmanager
def _restoring(parameters: Sequence[torch.nn.Parameter]) -> Iterator[int]:
    """Restores weights and random numbers afterwards. Yields the bytes on the device that this takes."""
    copies = [parameter.detach().to("cpu", copy=True) for parameter in parameters]
    devices = [parameters[0].device] if parameters[0].device.type == "cuda" else []
    copy_bytes = 0 if devices else sum(value.numel() * value.element_size() for value in copies)
    try:
        with torch.random.fork_rng(devices=devices):
            yield copy_bytes
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, copies, strict=True):
                parameter.copy_(value)
                parameter.grad = None


def device_name(device: torch.device) -> str:
    """Returns the name of a GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def save_choice(
    folder: Path, *, conditions: Mapping[str, str], choice: Profile, profiles: Sequence[Profile]
) -> None:
    """Writes memory_profiles.json: the conditions, all measurements, and the choice."""
    content = {
        "asked": dict(conditions),
        "choice": asdict(choice),
        "profiles": [{**asdict(profile), "share": profile.share} for profile in profiles],
    }
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / FILE, json.dumps(content, indent=2).encode() + b"\n")


def saved_choice(folder: Path, *, conditions: Mapping[str, str]) -> Profile | None:
    """Returns the choice of an earlier start with the same `conditions`, or None. Raises `InvalidInput` if
    the file is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    content = read_object(path, "asked", "choice")
    if content["asked"] != dict(conditions):
        return None
    try:
        choice = Profile(**content["choice"])
        if not choice.tokens >= 1:
            raise ValueError(f"{choice.tokens!r} tokens per pass")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{path} has no valid choice ({error}): delete it to measure again") from error
    return choice
