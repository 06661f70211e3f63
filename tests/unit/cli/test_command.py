import os
import re
import sys
from pathlib import Path

import pytest

from launcher import command as cli
from launcher.command import COMMANDS, EXTRAS, main
from launcher.services import SERVICES
from rookery import __version__
from tests.conftest import ROOT


class Become:
    """Stands where `os.execv` would end the test."""

    def __init__(self) -> None:
        self.argv: list[str] = []

    def __call__(self, path: str, argv: list[str]) -> int:
        assert path == sys.executable
        self.argv = argv[1:]
        return 0


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    stand_in = Become()
    monkeypatch.setattr(os, "execv", stand_in)
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: object())
    return stand_in


@pytest.mark.parametrize(
    ("argv", "module"),
    [
        ("serve data --port 1", "services.data --port 1"),
        ("serve feed", "services.data.feed"),
        ("serve reward --nodes 9", "services.reward --nodes 9"),
        ("serve inference --help", "services.inference.server --help"),
        ("serve rollouts", "services.inference.rollouts"),
        ("serve trainer", "services.trainer"),
        ("score FEN RESPONSE --json", "services.reward score FEN RESPONSE --json"),
        ("sft --help", "services.trainer sft --help"),
        ("reward-model --steps 5", "services.trainer reward-model --steps 5"),
        ("dpo --beta 1", "services.trainer dpo --beta 1"),
        ("serve reward-model --port 1", "services.trainer serve-reward-model --port 1"),
        ("data sample --count 3", "services.data sample --count 3"),
        ("data", "services.data help"),
        ("data --help", "services.data help"),
        ("rescore runs/archive --scheme best", "services.data rescore runs/archive --scheme best"),
        ("serve archive --run r", "services.data.archiver --run r"),
        ("arena evaluate", "services.arena evaluate"),
    ],
)
def test_commands_become_their_module(become: Become, argv: str, module: str) -> None:
    main(argv.split())
    assert become.argv == ["-m", *module.split()]


def test_uci_is_told_how_to_start_a_server(become: Become) -> None:
    main(["uci", "--player", "run:runs/demo"])
    assert become.argv == [
        *("-m", "services.arena", "uci", "--server-command"),
        f"{sys.executable} -m launcher serve players",
        *("--player", "run:runs/demo"),
    ]


def test_every_module_exists_and_has_its_extra() -> None:
    modules = {service.module for service in SERVICES.values()}
    for module in {*modules, *EXTRAS}:
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), module
    assert modules <= set(EXTRAS)


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    assert main(["serve", "trainer"]) == 2
    assert "needs torch: pip install 'rookery[trainer]'" in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    words = capsys.readouterr().out.split()
    assert set(COMMANDS) <= set(words)
    assert main(["serve", "--help"]) == 0
    assert set(SERVICES) <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize("argv", [["sreve"], ["serve", "rewrd"], ["serve"], []])
def test_a_wrong_word_is_quoted_beside_the_right_ones(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert "usage: rookery" in said
    if argv and argv != ["serve"]:
        assert repr(argv[-1]) in said


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rookery {__version__}\n"


def test_the_changelog_ends_at_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)[0] == __version__


def test_status_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--runs-dir", str(tmp_path)]) == 2
    assert "give --run, --runs-dir or --redis-url" in capsys.readouterr().err
