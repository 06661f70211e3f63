"""The page's sections on tasks and formats: the command runs, and every name and example is there."""

import json
import re
import shlex
from pathlib import Path
from typing import get_args

import chess
import pytest

from chess_datasets.__main__ import main
from chess_datasets.commands.settings.positions import TasksSettings
from rookery.formats import FORMATS
from rookery.rookworld import LAYOUTS, parse_policy_line, parse_state_line
from tests.commands import call
from tests.conftest import ROOT

TASKS = (ROOT / "chess_datasets" / "README.md").read_text().split("\n## Tasks\n")[1].split("\n## ")[0]
SHOWN = (ROOT / "services" / "data" / "README.md").read_text().split("\n## Formats\n")[1].split("\n## ")[0]


@pytest.mark.stockfish
def test_the_command_writes_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = re.findall(r"^rookery data tasks .*$", TASKS, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(command)[2:], "--nodes", "2000"]) == 0
    out = tmp_path / "runs" / "rookworld"
    lines = (out / "lines.txt").read_text().splitlines()
    assert len(lines) == 20
    for line in lines:
        parse_state_line(line) if line.startswith("A: ") else parse_policy_line(line)
    manifest = json.loads((out / "manifest.json").read_text())
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == sorted(
        ["manifest.json", *(output["path"] for output in manifest["outputs"])]
    )


def test_tasks_flags_and_layouts_exist() -> None:
    help_text = call(main, ["tasks", "--help"]).stdout
    named = re.findall(r"^\| `([a-z-]+)`", TASKS, re.MULTILINE)
    assert get_args(TasksSettings.model_fields["task"].annotation) == tuple(named)
    assert all(flag in help_text for flag in re.findall(r"--[a-z][a-z-]+", TASKS))
    assert all(f"`{layout}`" in TASKS or f"--layout {layout}" in TASKS for layout in LAYOUTS)


def test_formats_are_shown_as_they_are() -> None:
    rows = dict(re.findall(r"^\| `([a-z]+)` \| (.*) \|$", SHOWN, re.MULTILINE))
    assert rows.keys() == FORMATS.keys()
    board = chess.Board()
    moves = ["e2e4", "e7e5"]
    for move in moves:
        board.push_uci(move)
    for name, shown in rows.items():
        if example := re.match(r"`(.*?)( \.\.\.)?`", shown):
            assert FORMATS[name](board.fen(), moves).startswith(example[1])
