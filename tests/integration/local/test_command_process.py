"""The `rookery` command as a process of its own."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

INTERRUPTED = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
from launcher.command import main
sys.meta_path.insert(0, Interrupt())
sys.exit(main(sys.argv[2:]))
"""


def test_players_without_a_server_pass_through() -> None:
    specs = ["random", "stockfish,nodes=10,skill=3", "http://h:1#m,style=fen"]
    command = [sys.executable, "-m", "launcher", "serve", "players", *specs]
    done = subprocess.run(command, input="", capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == specs


@pytest.mark.parametrize(
    "module", ["rookery.settings", "pydantic_settings.sources", "rich.console", "launcher.session", "redis"]
)
def test_ctrl_c_in_the_middle_of_an_import_is_quiet(module: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        INTERRUPTED,
        module,
        "up",
        "--runs-dir",
        str(tmp_path),
        "--model",
        "none",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_up_shows_what_the_services_resolve(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "launcher",
        "up",
        "--preset",
        "tiny-cpu",
        "--dry-run",
        "--batch-groups",
        "8",
    ]
    done = subprocess.run(
        [*command, "--set", "trainer.lr=5e-4", "--runs-dir", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    resolved = tomllib.loads(done.stdout)
    assert list(tmp_path.iterdir()) == []
    assert list(resolved) == ["up", "feed", "reward", "rollouts", "trainer"]
    assert resolved["trainer"]["batch_groups"] == resolved["rollouts"]["batch_groups"] == 8
    assert (resolved["trainer"]["lr"], resolved["trainer"]["row_tokens"]) == (5e-4, 1024)
    assert any(
        line.startswith("row_tokens") and "preset tiny-cpu" in line for line in done.stdout.splitlines()
    )
