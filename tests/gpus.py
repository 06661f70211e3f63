"""A stand-in for nvidia-smi, which lists the GPUs that a test wants: no machine of ours has them."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from rookery import devices

MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
MIG_2 = "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"

_SCRIPT = """#!/bin/sh
[ "$1" = -L ] && exec cat '{folder}/list'
case "$1" in
  --query-gpu=compute_cap) sed -n "$(($4 + 1))p" '{folder}/capabilities' ;;
  --query-gpu=memory.total) sed -n "$(($4 + 1))p" '{folder}/memory' ;;
  *) exit 6 ;;
esac
"""


def uuid(index: int) -> str:
    """The UUID of a card."""
    return f"GPU-{index}c89852c-d268-c3f3-1b07-005d5ae1dc3f"


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    capabilities: Sequence[str],
    *,
    gib: float = 24,
    parts: Sequence[str] = (),
    build: str = "gpu",
) -> None:
    """Puts an nvidia-smi on PATH that lists a card for each capability, the first of them with MIG `parts`.
    torch and vLLM pass for a build for GPUs, unless `build` is cpu."""
    folder.mkdir(exist_ok=True)
    lines = []
    for index in range(len(capabilities)):
        lines.append(f"GPU {index}: NVIDIA A100-SXM4-40GB (UUID: {uuid(index)})")
        if index == 0:
            lines += [
                f"  MIG 3g.20gb     Device  {number}: (UUID: {part})" for number, part in enumerate(parts)
            ]
    (folder / "list").write_text("\n".join([*lines, ""]))
    (folder / "capabilities").write_text("\n".join([*capabilities, ""]))
    (folder / "memory").write_text(f"{round(gib * 1024)}\n" * len(capabilities))
    tool = folder / "nvidia-smi"
    tool.write_text(_SCRIPT.format(folder=folder))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for name in (devices.ORDER, devices.VISIBLE):
        monkeypatch.delenv(name, raising=False)
    devices.output_lines.cache_clear()  # of an earlier folder of this name
    monkeypatch.setattr(devices, "is_cpu_build", lambda package: build == "cpu")
