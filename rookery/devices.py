"""Which GPUs a process uses. This module decides it for every process, in one numbering: the user's own.

An index counts the entries of CUDA_VISIBLE_DEVICES if it is set, else the cards as `nvidia-smi` lists them,
which is their order on the PCI bus. A card may also be named by its UUID (GPU-...), a part of a card by its
MIG id (MIG-...). Imports neither torch nor vLLM: CUDA reads its variables once, when it is first used.
"""

import importlib.metadata
import math
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from rookery.errors import QUOTED_CHARS, SetupError

ORDER, VISIBLE = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"
PCI = "PCI_BUS_ID"
CPU = frozenset(("cpu", "auto"))
"""What `place` returns where no GPU is used."""
BF16_CAPABILITY = (8, 0)
"""The compute capability from which cards compute in bfloat16 (Ampere); vLLM refuses it below."""
ID = r"(?:GPU|MIG|MIG-GPU)-[0-9A-Fa-f-]{4,36}(?:/\d{1,3}/\d{1,3})?"
"""A UUID or a MIG id, old ones (MIG-GPU-UUID/1/0) included. CUDA accepts the beginning of one."""

_DEVICE = re.compile(rf"auto|cpu|(?:cuda:)?(\d{{1,4}})|{ID}")


def _device(name: str) -> str:
    match = _DEVICE.fullmatch(name)
    if match is None:
        raise ValueError("is neither `auto`, `cpu` nor the index of a GPU or its id (GPU-..., MIG-...)")
    return match[1] or name


def _devices(names: str) -> str:
    parsed = [_device(name) for name in names.split(",")]
    if set(parsed) == {"cpu"}:
        return ",".join(parsed)
    if len(parsed) > 1 and not {"auto", "cpu"}.isdisjoint(parsed):
        raise ValueError("lists several devices: each must be the index of a GPU or its id, or each `cpu`")
    if len(parsed) > 1 and any(name.startswith("MIG-") for name in parsed):
        raise ValueError("lists several devices: CUDA gives a process one MIG device, and NCCL none of them")
    if len(set(parsed)) < len(parsed):
        raise ValueError("names a GPU twice")
    return ",".join(parsed)


def _server_devices(names: str) -> str:
    if names.startswith("cpu,"):
        raise ValueError("lists the CPU twice: a server has one")
    return names


Device = Annotated[str, AfterValidator(_device)]
"""`auto`, `cpu`, the index of a GPU or its id. `cuda:0` is converted to 0."""

Devices = Annotated[str, AfterValidator(_devices)]
"""Like `Device`, or a device for each of several processes: GPUs, or `cpu,cpu`."""

ServerDevices = Annotated[Devices, AfterValidator(_server_devices)]
"""Like `Device`, or several GPUs that share one model."""

_TIMEOUT_S = 10.0
_LISTED = re.compile(r"(?:GPU (\d{1,4}):|\s+MIG )[^(]*\(UUID: ([^)]+)\)\s*")
_MIG_GIB = re.compile(r"\d{1,2}g\.(\d{1,4})gb")

_positions: dict[str, int] = {}
"""By name: the place of each device that `restrict` has left to this process."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card, or a MIG device: a part of a card. `line` is that of `nvidia-smi -L`, `index` its card's."""

    line: str
    uuid: str
    index: int

    @property
    def is_part(self) -> bool:
        return self.uuid.startswith("MIG-")


def list_gpus() -> list[Gpu]:
    """The cards that the NVIDIA driver lists, each followed by its MIG devices; none without a driver."""
    gpus: list[Gpu] = []
    for line in nvidia_smi("-L"):
        match = _LISTED.fullmatch(line)
        if match and (match[1] or gpus):
            gpus.append(Gpu(line.strip(), match[2], int(match[1] or gpus[-1].index)))
    return gpus


def usable_gpus(variables: Mapping[str, str] = os.environ) -> list[str]:
    """The names of what `auto` may choose from, in order: indices, and the ids of MIG devices. Raises
    `SetupError` if CUDA_VISIBLE_DEVICES names a card that this machine has not."""
    gpus = list_gpus()
    _check_order(variables)
    entries = _entries(variables)
    if entries is not None:
        names = [str(number) for number in range(len(entries))] if gpus else []
        _ = [entry(name, variables) for name in names]  # raises SetupError
        return names
    divided = {gpu.index for gpu in gpus if gpu.is_part}
    return [
        gpu.uuid if gpu.is_part else str(gpu.index) for gpu in gpus if gpu.is_part or gpu.index not in divided
    ]


def place(device: str, *, preferred: int, package: str, taken: Collection[str] = ()) -> str:
    """The device setting of a service that computes with `package`, torch or vllm.

    `auto` becomes the preferred one of the usable GPUs if there are so many, else the last; one that is
    `taken` only if all are. Without a GPU, or with a package built for the CPU, `auto` is kept and the
    service chooses.

    Raises:
        SetupError: there is no such GPU, or the package cannot use it.
    """
    cpu_build = device != "cpu" and is_cpu_build(package)
    if device == "auto":
        usable, used = [] if cpu_build else usable_gpus(), {entry(name) for name in taken if name not in CPU}
        gpus = [name for name in usable if entry(name) not in used] or usable
        return gpus[min(preferred, len(gpus) - 1)] if gpus else "auto"
    if device != "cpu":
        if not usable_gpus():
            raise _missing(device, 0, os.environ)
        entry(device)
        if cpu_build:
            raise SetupError(f"GPU {device}: the installed {package} is a CPU build")
    return device


def entry(name: str, variables: Mapping[str, str] = os.environ) -> str:
    """The entry of CUDA_VISIBLE_DEVICES that stands for a GPU. Raises `SetupError` if this machine, or
    CUDA_VISIBLE_DEVICES, has no such GPU, or several that begin like `name`."""
    _check_order(variables)
    gpus, entries = list_gpus(), _entries(variables)
    if name.isdigit():
        cards = [str(gpu.index) for gpu in gpus if not gpu.is_part]
        choices = cards if entries is None else entries
        if int(name) < len(choices):
            value = choices[int(name)]
            if cards and value.isdigit() and value not in cards:
                raise SetupError(
                    f"{VISIBLE}={variables[VISIBLE][:QUOTED_CHARS]}: this machine has {len(cards)} GPUs"
                )
            return value
        if entries is None and not cards:
            return name  # a container may have cards without nvidia-smi: CUDA itself says if there is none
        raise _missing(name, len(choices), variables)
    if entries is not None:
        matches = [e for e in entries if any(i.startswith(name) for i in _ids(e, gpus))]
    else:
        matches = [gpu.uuid for gpu in gpus if gpu.uuid.startswith(name)] if gpus else [name]
    if len(matches) != 1:
        raise SetupError(f"{len(matches)} GPUs are named {name}: {_hint(variables)}")
    return matches[0]


def environment(device: str, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that leave to a process its device, or its devices, and no other. `cpu` leaves none,
    `auto` all that `variables` leave. Raises `SetupError` as `entry` does."""
    if set(device.split(",")) == {"cpu"}:
        return {VISIBLE: ""}
    _check_order(variables)
    if device == "auto":
        return {ORDER: PCI}
    entries = [entry(name, variables) for name in device.split(",")]
    if len(set(entries)) < len(entries):
        raise SetupError(f"{device[:QUOTED_CHARS]} names a GPU twice")
    return {ORDER: PCI, VISIBLE: ",".join(entries)}


def restrict(device: str) -> None:
    """Leaves to this process, and to those that it starts, its device or devices alone. Must be called before
    torch is imported. Raises `SetupError` as `entry` does."""
    os.environ.update(environment(device))
    _positions.clear()
    if device not in ("auto", "cpu"):
        _positions.update({name: place for place, name in enumerate(device.split(","))})


def position(name: str) -> int:
    """The place of a GPU among those that this process sees, as torch counts them."""
    return _positions[name] if name in _positions else int(name)


def capability(device: str, variables: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """The compute capability of a GPU, for `auto` of the first one; None if nvidia-smi does not tell it."""
    major, _, minor = (_query(device, "compute_cap", variables) or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def memory_gib(device: str, variables: Mapping[str, str] = os.environ) -> float | None:
    """The memory of a GPU, in GiB; None if nvidia-smi does not tell it."""
    gpu = _gpu(device, variables)
    if gpu and gpu.is_part:
        size = _MIG_GIB.search(gpu.line)
        return float(size[1]) if size else None
    mib = _query(device, "memory.total", variables) or ""
    return int(mib) / 1024 if mib.isdigit() else None


def is_cpu_build(package: str) -> bool:
    """Whether the installed torch or vLLM was built for the CPU. False if it is not installed."""
    if any(importlib.metadata.distributions(name=f"{package}-cpu")):
        return True
    return any("cpu" in build.version for build in importlib.metadata.distributions(name=package))


def _gpu(device: str, variables: Mapping[str, str]) -> Gpu | None:
    """What nvidia-smi lists of a device; for `auto` the first."""
    gpus, usable = list_gpus(), usable_gpus(variables)
    if not usable:
        return None
    value = entry(usable[0] if device == "auto" else device, variables)
    return next((g for g in gpus if value == str(g.index) or g.uuid.startswith(value)), None)


def _query(device: str, field: str, variables: Mapping[str, str]) -> str | None:
    """One field of the card of a device, in the words of nvidia-smi."""
    gpu = _gpu(device, variables)
    if gpu is None:
        return None
    lines = nvidia_smi(f"--query-gpu={field}", "--format=csv,noheader,nounits", "-i", str(gpu.index))
    return lines[0].strip() if lines else None


def _entries(variables: Mapping[str, str]) -> list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES up to the first that is none, as CUDA reads them; None if unset."""
    if (text := variables.get(VISIBLE)) is None:
        return None
    entries: list[str] = []
    for item in map(str.strip, text.split(",")):
        if not re.fullmatch(rf"\d{{1,4}}|{ID}", item):
            break
        entries.append(item)
    return entries


def _ids(value: str, gpus: Sequence[Gpu]) -> list[str]:
    """The ids of an entry: of the card, and of its MIG devices where CUDA would take the first of them."""
    return [g.uuid for g in gpus if value == str(g.index) or g.uuid.startswith(value)][:1] or [value]


def _check_order(variables: Mapping[str, str]) -> None:
    if (order := variables.get(ORDER, PCI)) != PCI:
        raise SetupError(
            f"{ORDER}={order[:QUOTED_CHARS]}: indices count the GPUs as nvidia-smi does, {PCI}; unset it"
        )


def _missing(name: str, count: int, variables: Mapping[str, str]) -> SetupError:
    visible = variables.get(VISIBLE)
    owner = "this machine" if visible is None else f"{VISIBLE}={visible[:QUOTED_CHARS]}"
    return SetupError(f"no GPU {name}: {owner} has {count} {_hint(variables)}")


def _hint(variables: Mapping[str, str]) -> str:
    return f"(nvidia-smi -L lists them{'' if VISIBLE not in variables else f', {VISIBLE} selects'})"


def usable_cores() -> int:
    """How many cores of the CPU this process may use, by its affinity and the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, container_quota())))


def container_quota(root: Path = Path("/sys/fs/cgroup")) -> float:
    """How many cores' time this process's container may use, by cgroups of version 2 or 1; infinite without a
    quota. `docker run --cpus` and limits of Kubernetes set it, and affinity does not show it."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # "max" is no number
            quota, period = map(int, " ".join((root / name).read_text() for name in names).split())
            if quota > 0:
                return quota / period
    return math.inf


def nvidia_smi(*arguments: str) -> list[str]:
    """The lines of its answer, asked once; none if there is no nvidia-smi, or it fails."""
    tool = shutil.which("nvidia-smi")
    return output_lines(tool, *arguments) if tool else []


@cache
def output_lines(tool: str, *arguments: str) -> list[str]:
    """What a program prints; nothing if it fails, or takes more than ten seconds."""
    try:
        done = subprocess.run(
            [tool, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if done.returncode else done.stdout.splitlines()
