"""A light part stays light: it installs without torch and vLLM, and never asks for them.

Each part runs in an environment that holds what its extra names and nothing else, taken from the
packages installed here. The same parts, imported where torch and vLLM could be had, leave them alone.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.markers import default_environment

from scripts.lock import closure
from tests.conftest import ROOT

HEAVY = ["torch", "vllm", "peft", "transformers"]

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
forbidden, brought = json.loads(sys.argv[1]), {}
for name in forbidden:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    brought[name] = [heavy for heavy in forbidden[name] if heavy in sys.modules]
print(json.dumps(brought))
"""

RUN_HELP = """
import json, runpy, sys
command, *forbidden = sys.argv[1:]
sys.argv = [*command.split(), "--help"]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except SystemExit as ended:
    print(json.dumps([name for name in forbidden if name in sys.modules]), file=sys.stderr)
    sys.exit(ended.code)
"""

LIGHT: dict[str, tuple[set[str], list[str]]] = {
    "commentary": (set(), [*HEAVY, "fastapi", "rookery", "numpy"]),
    "rookery": (set(), [*HEAVY, "fastapi"]),
    "launcher": (set(), [*HEAVY, "fastapi"]),
    "chess_datasets": ({"data"}, HEAVY),
    "services.data": ({"data"}, HEAVY),
    "services.reward": ({"reward"}, HEAVY),
    "services.inference.rollouts": ({"rollouts"}, HEAVY),
    "arena": ({"arena"}, HEAVY),
    "services.viewer": ({"viewer"}, HEAVY),
}
"""Package: the extras it may lean on, the modules it must not bring.
None may bring what the next must not."""

COMMANDS: dict[str, list[str]] = {
    "chess_datasets": ["pyarrow", "numpy"],
    "chess_datasets sample": ["pyarrow", "numpy", "commentary"],
    "chess_datasets tasks": ["pyarrow", "numpy", "commentary"],
    "chess_datasets annotate": ["pyarrow", "numpy", "commentary"],
    "chess_datasets rescore": ["pyarrow", "numpy", "commentary"],
    "services.data": [],
    "services.reward": [],
    "services.inference.server": ["transformers"],
    "services.inference.rollouts": ["transformers", "grpc", "fastapi"],
    "services.trainer": [],
    "bench.scaling": ["safetensors", "matplotlib"],
    "arena": [],
    "arena evaluate": ["numpy", "matplotlib"],
    "arena match": ["numpy", "chess"],
    "arena tournament": ["numpy", "chess"],
    "arena elo": ["numpy", "chess"],
    "services.viewer": ["duckdb", "fastapi", "chess"],
    "launcher": [],
    "launcher up": ["transformers", "fastapi", "matplotlib"],
    "launcher demo": ["transformers", "fastapi", "matplotlib"],
    "launcher status": ["transformers", "fastapi", "matplotlib"],
    "launcher view": ["duckdb", "fastapi", "matplotlib"],
}
"""Command: the modules that its `--help` must not import, besides torch and vllm."""


def run(python: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python from the repository, seeing nothing of this process's paths."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [python, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """The interpreter of an environment without a single package."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    return tmp_path / "env" / "bin" / "python"


def install(extras: set[str], python: Path) -> None:
    """Links the packages that the project with `extras` needs from this environment into that one."""
    (target,) = python.parent.parent.glob("lib/python*/site-packages")
    for name in closure(extras, {**default_environment()}):  # type: ignore[dict-item]
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}:
            link, source = target / top, Path(str(distribution.locate_file(top)))
            if not link.exists():
                link.symlink_to(source)


@pytest.mark.parametrize("package", LIGHT)
def test_its_extra_is_all_it_needs(package: str, bare_python: Path) -> None:
    extras, forbidden = LIGHT[package]
    install(extras, bare_python)
    result = run(bare_python, "-c", IMPORT_EVERYTHING, json.dumps({package: forbidden}))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {package: []}
    if package not in ("rookery", "commentary"):
        assert run(bare_python, "-m", package, "--help").returncode == 0


def test_they_ask_for_nothing_heavy_that_is_there() -> None:
    """In one process: those with the fewest needs come first."""
    forbidden = {package: names for package, (_, names) in LIGHT.items()}
    result = run(sys.executable, "-c", IMPORT_EVERYTHING, json.dumps(forbidden))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {package: [] for package in LIGHT}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_heavy(command: str) -> None:
    result = run(sys.executable, "-c", RUN_HELP, command, "torch", "vllm", *COMMANDS[command])
    assert result.returncode == 0, result.stderr
    assert "usage: " in result.stdout.lower()
    assert json.loads(result.stderr.splitlines()[-1]) == []


def test_an_environment_without_its_extra_fails(bare_python: Path) -> None:
    """The check above can fail: nothing leaks into the bare environment."""
    install(set(), bare_python)
    assert "No module named 'fastapi'" in run(bare_python, "-c", "import fastapi").stderr
