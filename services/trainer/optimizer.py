"""AdamW over the adapter, its warm-up, and its state as safetensors (never pickle)."""

from pathlib import Path

import torch
from safetensors.torch import load, save

FILE = "optimizer.safetensors"


def build(parameters: list[torch.nn.Parameter], *, lr: float) -> torch.optim.AdamW:
    """Fused AdamW without weight decay: a LoRA adapter is small enough to be left alone."""
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.99), weight_decay=0.0, fused=True)


def set_lr(optimizer: torch.optim.Optimizer, *, lr: float, step: int, warmup_steps: int) -> float:
    """Linear warm-up, then constant; `step` counts from 0. The rate now in force."""
    now = lr * min(1.0, (step + 1) / (warmup_steps + 1))
    for group in optimizer.param_groups:
        group["lr"] = now
    return now


def dump(optimizer: torch.optim.Optimizer) -> bytes:
    """Moments and step counts, keyed by parameter index."""
    data: bytes = save(
        {
            f"{index}.{name}": value.detach().cpu().contiguous()
            for index, state in optimizer.state_dict()["state"].items()
            for name, value in state.items()
        }
    )
    return data


def restore(optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """The inverse of `dump`, from a commit's folder."""
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load((folder / FILE).read_bytes()).items():
        index, name = key.split(".", 1)
        moments.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
