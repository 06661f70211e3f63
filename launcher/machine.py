"""The GPUs and the CPU of this machine, asked without torch, in words."""

import importlib.util
import os
import platform
import re
import shutil
import sysconfig
from pathlib import Path

from rookery.devices import nvidia_smi, output_lines

OLDEST_DRIVERS = {12: 525, 13: 580}
"""The oldest NVIDIA driver for each CUDA, by their major versions (CUDA's release notes, table 3)."""


def describe_gpus() -> list[str]:
    """Each GPU with its memory and compute capability; none without a driver."""
    rows = nvidia_smi("--query-gpu=index,name,memory.total,compute_cap", "--format=csv,noheader")
    parts = [row.split(", ") for row in rows if row.count(", ") == 3]
    return [f"{index}: {name}, {memory}, compute capability {cap}" for index, name, memory, cap in parts]


def describe_driver() -> str:
    """The version of NVIDIA's driver, and whether the installed torch can use it."""
    rows = nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
    if not rows or not rows[0][:1].isdigit():
        return "none"
    version, cuda = rows[0], cuda_of_torch()
    needed = OLDEST_DRIVERS.get(int(cuda.partition(".")[0]), 0) if cuda else 0
    too_old = int(version.partition(".")[0]) < needed
    return f"{version}, too old: CUDA {cuda} needs {needed} or newer" if too_old else version


def cuda_of_torch() -> str | None:
    """The CUDA version of the installed torch; None of a build for CPUs, or without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text()  # importing torch takes seconds
    match = re.search(r"^cuda\b.*?= '([\d.]+)'", text, re.MULTILINE)
    return match[1] if match else None


def describe_cpu(facts: Path = Path("/proc/cpuinfo")) -> str:
    """The model of the CPU, its cores, and what its vector instructions mean for training and serving."""
    text = facts.read_text() if facts.exists() else ""
    lines = dict(re.findall(r"(?m)^(model name|flags|Features)\s*:\s*(.*)$", text))
    flags = set((lines.get("flags") or lines.get("Features") or "").split())
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "bf16") if flag in flags]
    precision = "bf16, which is fast here" if "avx512_bf16" in flags else "fp32, for want of avx512_bf16"
    parts = [lines.get("model name") or platform.machine(), f"{os.cpu_count()} cores", " ".join(known)]
    if platform.machine() == "x86_64" and "avx2" not in flags:
        parts.append("no avx2, which vLLM's CPU build needs")
    return ", ".join(filter(None, [*parts, f"precision=auto trains in {precision}"]))


def describe_compiler() -> str:
    """The C compiler and the headers of Python with which Triton compiles on GPUs, or what is missing."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    versions = output_lines(compiler, "--version") if compiler else []
    header = Path(sysconfig.get_path("include"), "Python.h")
    python = f"python{sysconfig.get_python_version()}-dev"
    missing = [] if versions else ["gcc", "libc6-dev"]
    missing += [] if header.exists() else [python]
    parts = [versions[0] if versions else f"none{f': CC={compiler} does not answer' if compiler else ''}"]
    if missing:
        parts.append(f"on GPUs Triton compiles when it runs: install {' '.join(missing)}")
    return "; ".join(parts)
