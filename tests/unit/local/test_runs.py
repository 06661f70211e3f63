import json
import re
from pathlib import Path

import pytest

from launcher.runs import SETTINGS_FILE, locked, new_run_id, settle_settings, write_json
from launcher.settings import DemoSettings, UpSettings
from rookery.errors import SetupError


def parse(tmp_path: Path, *argv: str) -> UpSettings:
    return UpSettings.parse(["--runs-dir", str(tmp_path), *argv], prog="rookery up")


def begin(tmp_path: Path, *argv: str) -> UpSettings:
    settings = settle_settings(parse(tmp_path, *argv))
    folder = tmp_path / settings.run
    folder.mkdir(exist_ok=True)
    write_json(folder / SETTINGS_FILE, settings.model_dump(mode="json"))
    return settings


def test_a_new_run_gets_a_readable_name(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d{8}-\d{4}-[a-z]+-[a-z]+", new_run_id())
    assert settle_settings(parse(tmp_path)).run


def test_a_resumed_run_keeps_what_it_began_with(tmp_path: Path) -> None:
    began = begin(tmp_path, "--run", "r", "--group-size", "4", "--set", "trainer.lr=1e-4", "--steps", "5")
    resumed = settle_settings(parse(tmp_path, "--run", "r", "--nodes", "50"))
    assert (resumed.group_size, resumed.set, resumed.nodes) == (4, began.set, 50)
    assert resumed.steps is None, "how long to go on is said anew"


def test_a_demo_can_be_gone_on_with(tmp_path: Path) -> None:
    demo = settle_settings(DemoSettings.parse(["--runs-dir", str(tmp_path), "--run", "d"], prog="demo"))
    (tmp_path / "d").mkdir()
    write_json(tmp_path / "d" / SETTINGS_FILE, demo.model_dump(mode="json"))
    assert settle_settings(parse(tmp_path, "--run", "d")).group_size == demo.group_size


def test_spoilt_settings_are_named(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / SETTINGS_FILE).write_text("{")
    with pytest.raises(SetupError, match=SETTINGS_FILE):
        settle_settings(parse(tmp_path, "--run", "r"))


def test_one_run_has_one_supervisor(tmp_path: Path) -> None:
    with locked(tmp_path / "r"), pytest.raises(SetupError, match="'r' is in use"), locked(tmp_path / "r"):
        pass
    with locked(tmp_path / "r"):
        pass


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    write_json(tmp_path / "x.json", {"a": 2})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
