import re
import runpy
import sys
from pathlib import Path

import pytest

from launcher import command as cli
from launcher.command import COMMANDS, EXTRAS, main
from launcher.services import SERVICES
from rookery import __version__
from tests.commands import call
from tests.conftest import ROOT


class Become:
    """Stands where another module would run in the test's process."""

    def __init__(self) -> None:
        self.argv: list[str] = []

    def __call__(self, module: str, *, run_name: str, alter_sys: bool) -> None:
        assert (run_name, alter_sys, sys.path[0]) == ("__main__", True, str(Path.cwd()))
        self.argv = [module, *sys.argv[1:]]


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    stand_in = Become()
    monkeypatch.setattr(runpy, "run_module", stand_in)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
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
        ("data sample --count 3", "chess_datasets sample --count 3"),
        ("data", "chess_datasets"),
        ("data --help", "chess_datasets --help"),
        ("rescore runs/archive --scheme best", "chess_datasets rescore runs/archive --scheme best"),
        ("serve archive --run r", "services.data.archiver --run r"),
        ("arena evaluate", "arena evaluate"),
    ],
)
def test_commands_become_their_module(become: Become, argv: str, module: str) -> None:
    main(argv.split())
    assert become.argv == module.split()


def test_uci_is_told_how_to_start_a_server(become: Become) -> None:
    main(["uci", "--player", "run:runs/demo"])
    assert become.argv == [
        *("arena", "uci", "--server-command"),
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


@pytest.mark.parametrize(
    "argv",
    [
        "up --runs-dir PATH",
        "up --runs-dir PATH --run kept",
        "up --runs-dir PATH --dry-run",
        "demo --runs-dir PATH",
        "status --runs-dir PATH",
        "doctor --redis-url redis://127.0.0.1:9/0 --out PATH",
        "evaluate random --out PATH",
        "arena curve PATH",
        "arena match random random,name=other --pairs 1 --out PATH",
        "arena tournament random random,name=other --out PATH",
        "data sample --count 1 --out PATH",
        "data rescore PATH --scheme best",
        "plot PATH",
    ],
)
def test_a_path_below_a_file_is_an_error_in_one_line(
    argv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module in [name for name in sys.modules if name.endswith(".__main__")]:
        monkeypatch.delitem(sys.modules, module)  # imported by another test: runpy would warn
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "x")
    done = call(main, argv.replace("PATH", path).split())
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert path in done.stderr


def test_an_empty_name_of_the_toml_file_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_CONFIG", "")
    assert main(["plan"]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rookery {__version__}\n"


def test_the_changelog_ends_at_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)[0] == __version__


def test_status_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--runs-dir", str(tmp_path)]) == 2
    assert "give --run, --runs-dir or --redis-url" in capsys.readouterr().err
