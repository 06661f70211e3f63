"""Chooses the GPUs of the inference service and the trainer."""

import shutil
import subprocess

from rookery.errors import SetupError

_TIMEOUT_S = 10.0

OLDEST_DRIVERS = {12: 525, 13: 580}
"""The oldest NVIDIA driver for each CUDA, by their major versions (CUDA's release notes, table 3)."""


def list_gpus() -> list[str]:
    """A line about each GPU that the NVIDIA driver lists; none without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in answer.stdout.splitlines() if line.startswith("GPU ")]


def count_gpus() -> int:
    """The number of GPUs."""
    return len(list_gpus())


def place(device: str, *, preferred: int, gpus: int) -> str:
    """The device setting of a service. `auto` becomes the preferred GPU if it exists, else the last GPU.

    Without a GPU, `auto` is kept and the service chooses. Raises `SetupError` if there is no such GPU.

    >>> [place("auto", preferred=1, gpus=gpus) for gpus in (0, 1, 2)]
    ['auto', '0', '1']
    """
    if device == "auto":
        return str(min(preferred, gpus - 1)) if gpus else "auto"
    if device != "cpu" and int(device) >= gpus:
        raise SetupError(f"no GPU {device}: this machine has {gpus} (nvidia-smi -L lists them)")
    return device
