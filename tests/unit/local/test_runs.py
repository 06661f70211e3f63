import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from launcher.dead import DeadSettings
from launcher.plan import HOST, default_lines, make_plan
from launcher.plots.runs import find_runs
from launcher.runs import (
    ENDPOINTS_FILE,
    MANIFEST_FILE,
    new_run_id,
    record_start,
    settle_settings,
    write_json,
)
from launcher.settings import SETTINGS_FILE, DemoSettings, UpSettings
from launcher.status import StatusSettings
from launcher.sweep import SweepSettings
from launcher.up import print_services
from rookery import __version__, mlflow_run
from rookery.command_line import main
from rookery.errors import SetupError
from rookery.folder_lock import is_locked, locked
from rookery.processes.ports import Ports
from rookery.remote import find_run, run_version
from tests.conftest import ROOT
from tests.hub import write_snapshot


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


def test_a_new_run_asks_in_the_style_of_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("--model", "models/rook-small")
    assert settle_settings(parse(tmp_path, *small)).style == "mover-twice"
    assert settle_settings(parse(tmp_path, *small, "--style", "fen")).style == "fen"
    begin(tmp_path, "--run", "r", *small, "--style", "fen")
    assert settle_settings(parse(tmp_path, "--run", "r")).style == "fen"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"file://{ROOT}/models/rook-small"
    assert settle_settings(parse(tmp_path, "--model", url)).style == "mover-twice"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(SetupError, match="no model 'some/model'"):
        settle_settings(parse(tmp_path, "--model", "some/model"))
    both = ("--model", "some/model", "--style", "fen", "--max-tokens", "9")
    assert settle_settings(parse(tmp_path, *both)).max_tokens == 9
    (write_snapshot(tmp_path / "hub", "some/model", {}) / "data_manifest.json").write_text('{"style": "fen"}')
    assert settle_settings(parse(tmp_path, "--model", "some/model")).style == "fen"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "data_manifest.json").write_text("[")
    with pytest.raises(SetupError, match=r"data_manifest\.json"):
        settle_settings(parse(tmp_path, "--model", str(tmp_path)))


def test_a_resumed_run_keeps_what_it_began_with(tmp_path: Path) -> None:
    began = begin(
        tmp_path,
        "--run",
        "r",
        "--group-size",
        "4",
        "--set",
        "trainer.lr=1e-4",
        "--steps",
        "5",
        "--from-version",
        "3",
    )
    resumed = settle_settings(parse(tmp_path, "--run", "r", "--nodes", "50"))
    assert (resumed.group_size, resumed.set, resumed.nodes) == (4, began.set, 50)
    assert resumed.steps is None, "how long to go on is said anew"
    assert resumed.from_version is None, "and so is where from"


def test_assignments_are_kept_until_the_same_setting_is_assigned_anew(tmp_path: Path) -> None:
    begin(tmp_path, "--run", "r", "--set", "trainer.lr=1e-4", "--set", "reward.k=0.002")
    again = ("--set", "trainer.lr=1e-5", "--set", "trainer.seed=3")
    resumed = settle_settings(parse(tmp_path, "--run", "r", *again))
    assert resumed.set == ("trainer.lr=1e-5", "reward.k=0.002", "trainer.seed=3")


def test_a_kept_assignment_may_lose_its_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = (
        "--set",
        "trainer.kl=k3",
        "--set",
        "trainer.kl_schedule=smooth",
        "--set",
        "trainer.kl_target=0.1",
    )
    begin(tmp_path, "--run", "r", *began)
    flags = ["--runs-dir", str(tmp_path), "--run", "r", "--dry-run", "--set", "trainer.kl=none"]
    with pytest.raises(SystemExit) as ended:
        UpSettings.parse(flags, prog="rookery up", show=print_services)
    assert ended.value.code == 0
    assert "kl_schedule has no effect with kl=none" in capsys.readouterr().out
    with pytest.raises(SetupError, match=r"kl_target=0\.2 has no effect with kl=none"):
        UpSettings.parse([*flags, "--set", "trainer.kl_target=0.2"], prog="rookery up", show=print_services)


def test_dry_run_of_a_resumed_run_shows_its_values_with_their_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(tmp_path, "--run", "r", "--group-size", "4", "--set", "trainer.lr=1e-4", "--steps", "5")
    flags = [
        "--runs-dir",
        str(tmp_path),
        "--run",
        "r",
        "--nodes",
        "50",
        "--set",
        "reward.k=0.002",
        "--dry-run",
    ]
    with pytest.raises(SystemExit) as ended:
        UpSettings.parse(flags, prog="rookery up", show=print_services)
    assert ended.value.code == 0
    said = capsys.readouterr().out
    tables = {part.partition("]")[0]: part for part in ("\n" + said).split("\n[")[1:]}
    assert set(tables) == {"up", "feed", "archive", "reward", "trainer", "inference", "rollouts", "viewer"}
    up, reward, rollouts, trainer = (
        dict(re.findall(r"^(\w+) = (.*)$", tables[name], re.M))
        for name in ("up", "reward", "rollouts", "trainer")
    )
    shown = {name: tuple(map(str.strip, up[name].split("  # "))) for name in up}
    assert shown["group_size"] == ("4", "run r")
    assert shown["nodes"] == ("50", "flag")
    assert shown["set"] == ('["trainer.lr=1e-4", "reward.k=0.002"]', "flag, run r")
    assert "steps" not in shown, "how long to go on is said anew"
    assert re.fullmatch(r"0.002 +# --set", reward["k"]), "a flag of one letter"
    assert re.fullmatch(r"4 +# the run", rollouts["group_size"])
    assert re.fullmatch(r"0.0001 +# --set", trainer["lr"])
    assert not (tmp_path / "r" / "redis").exists()


def test_a_demo_can_be_gone_on_with(tmp_path: Path) -> None:
    demo = settle_settings(DemoSettings.parse(["--runs-dir", str(tmp_path), "--run", "d"], prog="demo"))
    (tmp_path / "d").mkdir()
    write_json(tmp_path / "d" / SETTINGS_FILE, demo.model_dump(mode="json"))
    assert settle_settings(parse(tmp_path, "--run", "d")).group_size == demo.group_size


@pytest.mark.parametrize("spelled", ["d", "{}/d"])
def test_a_demo_of_another_model_keeps_its_settings(spelled: str, tmp_path: Path) -> None:
    flags = ["--runs-dir", str(tmp_path), "--run", "d"]
    given = [*flags, "--model", "models/rook-tiny", "--style", "fen", "--set", "trainer.lr=1e-4"]
    began = settle_settings(DemoSettings.parse(given, prog="demo"))
    (tmp_path / "d").mkdir()
    write_json(tmp_path / "d" / SETTINGS_FILE, began.model_dump(mode="json"))
    again = DemoSettings.parse([*flags[:3], spelled.format(tmp_path)], prog="demo")
    assert settle_settings(again).model_dump() == began.model_dump()
    assert SweepSettings.parse(flags, prog="sweep").preset == "rook-small", "its runs are d-00 and so on"
    with Ports(HOST) as ports:
        told = " ".join(default_lines(again, make_plan(settle_settings(again), ports)))
    assert "style" not in told, "it was given, and is not the model's"


@pytest.mark.parametrize("spelled", ["r", "runs/r", "./runs/r", "/FOLDER/runs/r", "run:r", "runs/r/"])
def test_a_run_is_spelled_alike_everywhere(
    spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "r"
    run.mkdir(parents=True)
    spelled = spelled.replace("/FOLDER", str(tmp_path))
    assert find_run(spelled).resolve() == run
    for suffix, version in (("", None), ("@42", 42), ("@007", 7)):
        folder, number = run_version(spelled + suffix)
        assert (folder.resolve(), number) == (run, version)
    write_json(run / ENDPOINTS_FILE, {"run": "r", "redis_url": "redis://h:1/0", "probes": {}})
    assert StatusSettings.parse([spelled], prog="status").place()["run_dir"].resolve() == run
    assert DeadSettings.parse(["list", "--run", spelled], prog="dead").place()["run"] == "r"
    (run / "metrics.jsonl").write_text('{"step": 1, "reward": 0}\n')
    assert [found.folder for found in find_runs([spelled], runs_dir=Path("runs"))] == [run]
    if not spelled.startswith("run:"):
        assert UpSettings.parse(["--run", spelled], prog="up").run == "r"


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        ("status lost", "lost"),
        ("doctor lost", "lost"),
        ("dead list --run lost", "lost"),
        ("view lost", "lost"),
        ("plot lost", "lost"),
        ("compare lost other", "lost"),
        ("replay lost", "lost"),
        ("plan --like lost", "lost"),
        ("arena curve lost", "lost"),
        ("evaluate run:lost@3 --sections puzzles", "lost"),
    ],
)
def test_a_run_that_is_not_there_is_named_with_those_that_are(
    argv: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "there").mkdir(parents=True)
    (tmp_path / "runs" / "there" / SETTINGS_FILE).touch()
    assert main(argv.split()) == 2
    wanted = f"no run '{place}': neither 'runs/{place}' nor '{place}' is a folder; runs in 'runs': there\n"
    assert capsys.readouterr().err.endswith(wanted)


def test_spoilt_settings_are_named(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / SETTINGS_FILE).write_text("{")
    with pytest.raises(SetupError, match=SETTINGS_FILE):
        settle_settings(parse(tmp_path, "--run", "r"))


def test_each_start_of_a_run_is_recorded_with_its_command_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["/bin/rookery", "up", "--run", "r", "--redis-url", "redis://:secret@h:1/0"]
    monkeypatch.setattr(sys, "argv", argv)
    record_start(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/bin/rookery", "up", "--run", "r"])
    monkeypatch.setattr(mlflow_run, "_ROOT", tmp_path)  # no checkout
    record_start(tmp_path)
    first = json.loads((tmp_path / MANIFEST_FILE).read_text())
    assert [start["command"] for start in first["starts"]] == [
        "rookery up --run r --redis-url 'redis://:***@h:1/0'",
        "rookery up --run r",
    ]
    assert re.fullmatch("[0-9a-f]{40}(-dirty)?", first["starts"][0]["commit"])
    assert (first["starts"][1]["commit"], first["starts"][1]["version"]) == ("", __version__)
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(first | {"starts": first["starts"] * 200}))
    record_start(tmp_path)
    then = json.loads((tmp_path / MANIFEST_FILE).read_text())
    assert (then["id"], len(then["starts"])) == (first["id"], 100)
    assert then["starts"][0] == first["starts"][0]
    for damaged in ('{"id": 7, "starts": 7}', '{"id":' * 10**5):
        (tmp_path / MANIFEST_FILE).write_text(damaged)
        record_start(tmp_path)
        anew = json.loads((tmp_path / MANIFEST_FILE).read_text())
        assert (len(anew["id"]), len(anew["starts"])) == (16, 1)


def test_a_run_whose_folder_is_renamed_or_copied_goes_on_in_redis(tmp_path: Path) -> None:
    begin(tmp_path, "--run", "one")
    write_json(tmp_path / "one" / ENDPOINTS_FILE, {"run": "one", "redis_url": "", "probes": {}})
    (tmp_path / "one").rename(tmp_path / "two")
    shutil.copytree(tmp_path / "two", tmp_path / "three")
    for folder, name in (("two", "one"), ("three", "one"), ("new", "new")):
        with Ports(HOST) as ports:
            plan = make_plan(settle_settings(parse(tmp_path, "--run", folder)), ports)
        assert plan.run_dir == tmp_path / folder
        services = {service: getattr(plan.settings[service].values, "run", name) for service in plan.settings}
        assert set(services.values()) == {name}, folder


def test_one_run_has_one_supervisor(tmp_path: Path) -> None:
    with locked(tmp_path / "r"), pytest.raises(SetupError, match="r' is in use"), locked(tmp_path / "r"):
        pass
    with locked(tmp_path / "r"):
        assert is_locked(tmp_path / "r")
    assert not is_locked(tmp_path / "r")
    assert not is_locked(tmp_path / "none")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    write_json(tmp_path / "x.json", {"a": 2})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_file_that_may_hold_a_password_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "x.tmp").write_text("of a writer that was killed")
    before = os.umask(umask)
    try:
        write_json(tmp_path / "x.json", {"redis_url": "redis://:secret@h/0"})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o600
