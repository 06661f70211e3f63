"""`make setup` on a machine with NVIDIA's driver, up to what it would download.

nvidia-smi, df and apt-get are stand-ins.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from scripts.lock import GPU_EXTRAS
from tests.conftest import ROOT, require

SMI = """#!/bin/sh
case $1 in
  -L) echo "GPU 0: NVIDIA L4 (UUID: GPU-0)" ;;
  *) echo "{driver}" ;;
esac
"""
DF = """#!/bin/sh
echo "Filesystem 1024-blocks Used Available Capacity Mounted on"
echo "/dev/root 99 9 {kib} 9% /"
"""
APT = """#!/bin/sh
echo "apt-get $*"
[ "$1" = update ]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make setup` reads, with the stand-ins in bin/."""
    for name in ("scripts/setup.sh", "requirements/cpu.txt", "requirements/gpu.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    return tmp_path


def stand_in(checkout: Path, name: str, text: str) -> None:
    (checkout / "bin" / name).write_text(text)
    (checkout / "bin" / name).chmod(0o755)


def set_up(checkout: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "scripts/setup.sh"],
        cwd=checkout,
        env={
            **os.environ,
            "PATH": f"{checkout}/bin:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("driver", "kib", "error"),
    [
        (
            "550.54.15",
            10**9,
            r"NVIDIA's driver is 550\.54\.15, and torch [\d.]+ needs 580 or newer: .*ROOKERY_PROFILE=cpu",
        ),
        (
            "580.65.06",
            9_000_000,
            r"9 GB are free in \S+, and the packages for GPUs need 16 \(5 downloaded, 11 installed\)",
        ),
    ],
)
def test_what_gpus_need_is_checked_before_anything_is_made(
    driver: str, kib: int, error: str, checkout: Path
) -> None:
    stand_in(checkout, "nvidia-smi", SMI.format(driver=driver))
    stand_in(checkout, "df", DF.format(kib=kib))
    assert re.search(f"^error: {error}", set_up(checkout), re.MULTILINE)
    assert not (checkout / ".venv").exists()


def test_a_missing_c_compiler_is_installed_before_the_packages(checkout: Path) -> None:
    stand_in(checkout, "nvidia-smi", SMI.format(driver="580.65.06"))
    stand_in(checkout, "df", DF.format(kib=10**9))
    for name in ("apt-get", "sudo"):
        stand_in(checkout, name, APT)
    venv.create(checkout / ".venv", with_pip=False, symlinks=True)
    output = set_up(checkout, CC="/no/compiler")
    assert re.search("install .* gcc libc6-dev", output)
    assert "pinned packages" not in output


@pytest.mark.uv
@pytest.mark.parametrize("python", ["3.11", "3.12"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_lock_for_gpus_is_all_that_pyproject_asks_for(python: str, machine: str, tmp_path: Path) -> None:
    """Asks the package index, and downloads no package."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)

    def resolved(*arguments: str) -> set[str]:
        where = ["--python", str(tmp_path / "env" / "bin" / "python"), "--target", str(tmp_path / "none")]
        where += ["--python-version", python, "--python-platform", f"{machine}-manylinux_2_35"]
        command = [require("uv"), "pip", "install", "--dry-run", *where, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if re.search("Failed to fetch|error sending request|dns error", done.stderr):
            pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        return {line for line in done.stderr.splitlines() if line.startswith(" + ")}

    lock = ["requirements/gpu.txt"]
    locked = resolved("--no-deps", "--require-hashes", "--requirement", *lock)
    assert len(locked) > 250
    extras = [f"--extra={name}" for name in GPU_EXTRAS]
    assert resolved("--requirement", "pyproject.toml", *extras, "--constraint", *lock) == locked
