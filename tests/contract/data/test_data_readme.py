"""The service's page tells the truth: every command of it is executed, every field of it exists."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest

from chess_datasets.__main__ import main
from rookery.access import AccessSettings
from rookery.config.data import ArchiverSettings, DataSettings, FeedSettings
from rookery.pgn.rawgame import Defect
from rookery.trace import Prompt
from services.data.app import MAX_COUNT, GameBody, PositionBody, PositionsBody, PositionsQuery, RenderRequest
from tests.commands import call
from tests.conftest import ROOT
from tests.contract.running_service import RunningService
from tests.curl import run_curl

TEXT = "".join((ROOT / folder / "README.md").read_text() for folder in ("services/data", "chess_datasets"))
CURLS = re.findall(r"^curl (?:.*\\\n)*.*$", TEXT, re.MULTILINE)
COMMANDS = re.findall(r"^rookery data (?:sample --split|moves).*$", TEXT, re.MULTILINE)
SHOWN, SHOWN_GAME = (
    json.loads(re.sub(r"\s+//.*", "", block)) for block in re.findall(r"```jsonc\n(.*?)```", TEXT, re.DOTALL)
)
ANSWERS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]
COUNT_0, NO_GAME, RENDERED = ANSWERS


@pytest.fixture
def curl(data_service: RunningService) -> Callable[[str], str]:
    def run(asked: str) -> str:
        """The answer to the one curl whose text holds `asked`."""
        (command,) = (command for command in CURLS if asked in command)
        return run_curl(command, {"http://localhost:8001": data_service.url}).text

    return run


def test_every_curl_is_found() -> None:
    assert len(CURLS) == TEXT.count("curl -s") == 10


def test_the_answer_is_the_one_shown(curl: Callable[[str], str]) -> None:
    answer = json.loads(curl("count=2&seed=7'"))
    assert _shortened(answer["positions"]) == SHOWN["positions"]
    assert answer | {"positions": SHOWN["positions"]} == SHOWN
    assert answer.keys() == PositionsBody.model_fields.keys()
    assert answer["positions"][0].keys() == PositionBody.model_fields.keys()


def test_an_offset_goes_on(curl: Callable[[str], str]) -> None:
    assert _shortened(json.loads(curl("seed=7&offset=1"))["positions"]) == SHOWN["positions"][1:]


def _shortened(positions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [position | {"last_moves": position["last_moves"][:3]} for position in positions]


def test_held_out(curl: Callable[[str], str]) -> None:
    answer = json.loads(curl("heldout"))
    assert answer["split"] == "heldout"
    assert len(answer["positions"]) == 100


def test_the_problem(curl: Callable[[str], str]) -> None:
    assert json.loads(curl("count=0")) == COUNT_0


def test_the_game_behind_a_position(curl: Callable[[str], str]) -> None:
    answer = json.loads(curl("/v1/games/0c14ce2687fe554e"))
    assert answer.keys() == GameBody.model_fields.keys()
    shortened = {"moves": answer["moves"][:3], "pgn": answer["pgn"][: len(SHOWN_GAME["pgn"])]}
    assert answer | shortened == SHOWN_GAME
    assert [answer["id"], answer["source"]] == [SHOWN["positions"][1]["game_id"], "8999067f"]
    assert json.loads(curl("8999067f:999999")) == NO_GAME


def test_the_prompt(curl: Callable[[str], str]) -> None:
    assert json.loads(curl("/v1/render")) == RENDERED
    assert list(RENDERED) == [field.name for field in fields(Prompt) if field.name != "tools"]


def test_the_probes(curl: Callable[[str], str], data_service: RunningService) -> None:
    httpx.get(f"{data_service.url}/v1/positions?count=1").raise_for_status()
    assert json.loads(curl("/healthz")) == {"status": "alive"}
    assert json.loads(curl("/readyz")) == {"status": "ready"}
    assert "rookery_positions_sampled_total{" in curl("/metrics")


def test_docs_are_served(data_service: RunningService) -> None:
    assert "swagger" in httpx.get(f"{data_service.url}/docs").text


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, moves = COMMANDS
    in_an_empty_folder(tmp_path, monkeypatch)
    printed = _run(sample).splitlines()
    assert len(printed) == 500
    assert json.loads(printed[0]).keys() == PositionBody.model_fields.keys()
    _run(moves)
    manifest = json.loads((tmp_path / "runs" / "moves" / "manifest.json").read_text())
    assert manifest["lines"] == 5000
    assert 2800 < manifest["by_kind"]["move"] < 3200


@pytest.mark.stockfish
@pytest.mark.parametrize("command", re.findall(r"^rookery data .*$", TEXT, re.MULTILINE))
def test_the_longer_commands(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_an_empty_folder(tmp_path, monkeypatch)
    searches = any(name in command for name in ("rookworld", "annotate", "pairs"))
    printed = _run(command, *(["--nodes", "1000"] if searches else []))
    *_, name = command.partition(" --out ")
    if name:
        manifest = json.loads((tmp_path / name.split()[0] / "manifest.json").read_text())
        assert {output["size"] > 0 for output in manifest["outputs"]} == {True}
    else:
        assert "samples/lichess.pgn.zst" in printed or "positions" in printed or '"fen"' in printed


def in_an_empty_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing but the samples."""
    (folder / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(folder)


def _run(command: str, *more: str) -> str:
    words = shlex.split(command)
    assert words[:2] == ["rookery", "data"]
    done = call(main, [*words[2:], *more])
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(first_cell: str) -> list[list[str]]:
    """The rows of the tables whose first cell fits, as lists of cells."""
    return [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if re.match(rf"\| {first_cell}", line)
    ]


def test_the_parameters() -> None:
    parameters = {row[0]: row[2] for row in rows(r"`\w+` \| (integer|string|array)")}
    assert list(parameters) == [*PositionsQuery.model_fields, *RenderRequest.model_fields]
    for name, field in RenderRequest.model_fields.items():
        assert parameters[name] == ("" if field.is_required() else str(field.default))
    for name, field in PositionsQuery.model_fields.items():
        shown = "the service's" if field.default is None else str(field.default)
        assert parameters[name] == shown
    assert f"at most {MAX_COUNT}." in TEXT


def test_the_reasons() -> None:
    assert {row[0] for row in rows(r"`\w+` \| [A-Z]") if len(row) == 2} == {defect.value for defect in Defect}


def test_the_settings() -> None:
    shown: dict[str, Any] = {row[1]: row[2] for row in rows("`--")}
    fields = {f"DATA_{name.upper()}": field for name, field in DataSettings.model_fields.items()}
    for name, field in FeedSettings.model_fields.items():
        prefix = "ROOKERY" if name in ("redis_url", "run") else "FEED"
        if name not in DataSettings.model_fields or name in ("host", "port"):
            fields[f"{prefix}_{name.upper()}"] = field
    for name, field in ArchiverSettings.model_fields.items():
        if name not in ("redis_url", "run"):
            fields[f"ARCHIVE_{name.upper()}"] = field
    shared = {name.upper() for name in AccessSettings.model_fields}
    own = {name: field for name, field in fields.items() if name.partition("_")[2] not in shared}
    assert shown == {name: str(field.default) for name, field in own.items()}
