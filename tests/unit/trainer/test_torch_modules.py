"""What is tested of every module and command, for those that import torch."""

from pathlib import Path

import pytest

from launcher.settings import SETTINGS_FILE
from rookery.command_line import main
from rookery.commands import Command
from tests.unit.cli.test_command import OF_TORCH, assert_declared
from tests.unit.test_doctests import WITH_EXAMPLES, assert_true, module_name, needs_torch
from tests.unit.test_hostile_texts import SOURCES, assert_linear


@pytest.mark.parametrize("path", [p for p in WITH_EXAMPLES if needs_torch(p)], ids=module_name)
def test_examples_are_true(path: Path) -> None:
    assert_true(path)


@pytest.mark.parametrize("path", [p for p in SOURCES if needs_torch(p)], ids=module_name)
def test_a_regular_expression_is_linear(path: Path) -> None:
    assert_linear(path)


@pytest.mark.parametrize("command", OF_TORCH, ids=lambda command: command.name)
def test_a_command_has_a_function_and_settings(command: Command) -> None:
    assert_declared(command)


def test_a_run_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "there").mkdir(parents=True)
    (tmp_path / "runs" / "there" / SETTINGS_FILE).touch()
    assert main(["merge", "lost@3", "--out", "x"]) == 2
    wanted = "no run 'lost': neither 'runs/lost' nor 'lost' is a folder; runs in 'runs': there\n"
    assert capsys.readouterr().err.endswith(wanted)


def test_what_is_wrong_is_quoted_only_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sft", "--model", "m", "--data", f"abc://{'x/' * 1900}", "--out", "o"]) == 2
    assert len(capsys.readouterr().err) < 1000
