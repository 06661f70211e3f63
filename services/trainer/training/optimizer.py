"""AdamW, its learning rate, and its state as safetensors (never pickle)."""

import importlib.util
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from rookery.config.conditions import LrSchedule
from rookery.errors import SetupError
from services.trainer.distributed.placement import shard_like
from services.trainer.versions import commits
from services.trainer.versions.files import StoredTensor, TensorFile

FILE = commits.OPTIMIZER

FINAL_SHARE = 0.01
"""Where the schedules linear and cosine end, as a share of the peak: the last steps still change weights."""


def build(
    parameters: list[torch.nn.Parameter],
    *,
    lr: float,
    bits: int = 32,
    offload: bool = False,
    betas: tuple[float, float] = (0.9, 0.99),
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Creates a fused AdamW. There is no weight decay by default, because a LoRA adapter is small.

    With 8 `bits`, the moments are quantised in blocks of 256 (Dettmers et al., arXiv 2110.02861), except for
    tensors with fewer than 4,096 numbers. `offload` keeps the moments in CPU memory between steps. Raises
    `SetupError` if bitsandbytes is not installed, or there is no GPU to offload from.
    """
    check(parameters[0].device, bits=bits, offload=offload)
    options: dict[str, Any] = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
    if bits == 8:
        from bitsandbytes.optim import AdamW8bit

        optimizer: torch.optim.Optimizer = AdamW8bit(parameters, **options)
    else:
        optimizer = torch.optim.AdamW(parameters, **options, fused=True)
    if offload:
        device = parameters[0].device
        optimizer.register_step_pre_hook(lambda *_: place_moments(optimizer, device))
        optimizer.register_step_post_hook(lambda *_: place_moments(optimizer, torch.device("cpu")))
    return optimizer


def check(device: torch.device, *, bits: int, offload: bool) -> None:
    """Checks the arguments of `build`. Raises `SetupError` if bitsandbytes is not installed, or there is no
    GPU to offload from."""
    if bits == 8 and importlib.util.find_spec("bitsandbytes") is None:
        raise SetupError("adam_bits=8 needs bitsandbytes: pip install 'rookery[bits8]'")
    if offload and device.type == "cpu":
        raise SetupError("offload moves Adam's moments off a GPU, and the trainer runs on the CPU")


def place_moments(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Moves the moments to `device`. Step counts stay on the device of the weights, where Adam needs them."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value) and value.numel() > 1:
                state[name] = value.to(device)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate. `lr_factor` computes its share of the peak."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def dump(optimizer: torch.optim.Optimizer) -> TensorFile:
    """Moments and step counts, keyed by parameter index."""
    # Not from `state_dict`, because bitsandbytes nests the quantised values there.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return TensorFile(
        {
            f"{index}.{name}": StoredTensor.of(torch.as_tensor(value))
            for index, parameter in enumerate(parameters)
            for name, value in optimizer.state.get(parameter, {}).items()
        }
    )


def restore(optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Loads the state written by `dump` from a commit's folder."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments: dict[int, dict[str, Any]] = {}
    for key, value in load((folder / FILE).read_bytes()).items():
        index, name = key.split(".", 1)
        # bitsandbytes counts steps in a plain integer, torch in a float tensor.
        counted = value.ndim == 0 and not value.is_floating_point()
        moments.setdefault(int(index), {})[name] = (
            value.item() if counted else shard_like(parameters[int(index)], value)
        )
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})


def lr_factor(schedule: LrSchedule, *, step: int, steps: int, warmup: int) -> float:
    """Returns the learning rate at `step`, counted from 0, as a share of its peak.

    It rises linearly in the warm-up and then follows `schedule` until `steps`. It depends on the step only,
    so that runs can resume.

    >>> [round(lr_factor("cosine", step=s, steps=100, warmup=10), 2) for s in (0, 9, 10, 55, 100)]
    [0.09, 0.91, 1.0, 0.51, 0.01]
    >>> [round(lr_factor("linear", step=s, steps=100, warmup=0), 2) for s in (0, 50, 100, 200)]
    [1.0, 0.51, 0.01, 0.01]
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule == "constant":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    factor = 1 - progress if schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return FINAL_SHARE + (1 - FINAL_SHARE) * factor
