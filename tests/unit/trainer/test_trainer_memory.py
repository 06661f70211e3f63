"""What the process holds, its peak, and what a control group leaves it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from services.trainer.records import memory
from services.trainer.records.memory import MIB, available_bytes, resident_bytes, watch

CPU = torch.device("cpu")


def run_alone(function: str) -> list[int]:
    """Returns the numbers that `function` of this file prints. It runs in a new process, since memory that
    other tests hold or release would count."""
    code = f"import runpy; runpy.run_path({__file__!r})[{function!r}]()"
    output = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
    return [int(number) for number in output.split()]


def print_peaks() -> None:
    before = resident_bytes()
    for mib in (60, 5):
        with watch(CPU) as peak:
            held = bytearray(b"x" * (mib * MIB))
            del held
        print(peak.bytes - before)


def test_the_peak_of_a_stretch_of_work_is_seen() -> None:
    high, low = run_alone("print_peaks")
    assert high > 55 * MIB
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("this kernel does not let the mark be set back")
    assert low < high - 30 * MIB


def test_available_counts_what_is_held_already() -> None:
    assert available_bytes(CPU) > resident_bytes()


def make_group(folder: Path, limit: str, used: int, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit + "\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\nactive_file 0\n")


def test_the_tightest_control_group_counts(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/pod/box\n")
    make_group(tmp_path / "pod" / "box", "max", 100)
    make_group(tmp_path / "pod", "1000", 700, cached=50)
    make_group(tmp_path, "5000", 700)
    assert memory._cgroup_free_bytes(tmp_path, membership) == 350


def test_version_1_groups_and_no_groups(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("5:memory:/box\n4:cpu:/box\n")
    box = tmp_path / "memory" / "box"
    box.mkdir(parents=True)
    (box / "memory.limit_in_bytes").write_text("4096")
    (box / "memory.usage_in_bytes").write_text("96")
    assert memory._cgroup_free_bytes(tmp_path, membership) == 4000
    assert memory._cgroup_free_bytes(tmp_path, tmp_path / "absent") == memory._UNLIMITED


def print_gaps() -> None:
    memory._GAPS_MIB = 64
    step_memory = memory.StepMemory(CPU)
    with step_memory.step():
        pass
    before = resident_bytes()
    with step_memory.step() as figures:
        # 122 MiB, in pieces that glibc keeps on its heap; the last one keeps it from shrinking.
        tensors = [torch.ones(16_000) for _ in range(2_000)]
        del tensors[:-1]
    held = int(figures["resident_mib"] * MIB)
    print(held - before, held - resident_bytes())


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_gaps_between_tensors_go_back_to_the_system() -> None:
    growth, released = run_alone("print_gaps")
    assert growth > 64 * MIB
    assert released > 64 * MIB
