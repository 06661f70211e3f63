"""Where `rookery status` looks for services that it did not start, and what it says of a run that ended."""

import json
import re
from pathlib import Path

import pytest

from launcher.runs import ENDPOINTS_FILE
from launcher.services import SERVICES
from launcher.settings import SETTINGS_FILE
from launcher.status import StatusSettings
from rookery.command_line import main
from rookery.plots.steps import METRICS_FILE


@pytest.mark.parametrize(
    ("flags", "reward"),
    [
        ([], "http://127.0.0.1:8080/readyz"),
        (["--host", "10.0.0.7"], "http://10.0.0.7:8080/readyz"),
        (["--host", "{service}"], "http://reward:8080/readyz"),
    ],
)
def test_services_are_sought_on_their_default_ports(flags: list[str], reward: str) -> None:
    settings = StatusSettings.parse(["--redis-url", "redis://r:6379/0", *flags], prog="rookery status")
    place = settings.place()
    assert place["probes"].keys() == SERVICES.keys()
    assert place["probes"]["reward"] == reward


@pytest.mark.parametrize(
    ("kept", "command"),
    [
        ({"steps": 60}, "rookery up --run one --runs-dir {runs} --steps 60"),
        ({"steps": 200, "eval_positions": 9}, "rookery demo --run one --runs-dir {runs} --steps 200"),
        ({"steps": 60, "eval_positions": 9}, "rookery demo --run one --runs-dir {runs}"),
        ({"steps": 40, "eval_positions": 9}, "rookery demo --run one --runs-dir {runs} --steps 80"),
        ({}, "rookery up --run one --runs-dir {runs}"),
    ],
)
def test_a_run_that_no_process_works_on(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kept: dict[str, int],
    command: str,
) -> None:
    run_dir = tmp_path / "one"
    run_dir.mkdir()
    endpoints = {"run": "one", "redis_url": "unix:///nowhere", "probes": {}}
    (run_dir / ENDPOINTS_FILE).write_text(json.dumps(endpoints))
    (run_dir / SETTINGS_FILE).write_text(json.dumps(kept))
    (run_dir / METRICS_FILE).write_text(json.dumps({"step": 40, "reward": -0.25}) + "\n")
    (tmp_path / "latest").symlink_to(run_dir)
    monkeypatch.chdir(run_dir)
    for words in (["one", "--runs-dir", str(tmp_path)], ["latest", "--runs-dir", str(tmp_path)], ["."]):
        assert main(["status", *words]) == 1
        shown = capsys.readouterr().out
        steps = f"40 of {kept['steps']}" if kept else "40"
        assert shown.startswith(f"run one does not run: {steps} steps done\n")
        assert re.search(r"mean reward +-0.250", shown)
        assert "".join(shown.split()).endswith(
            "".join(f"Go on with: {command}".format(runs=tmp_path).split())
        )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": "one"}', "\xff"])
def test_a_damaged_file_of_a_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "one").mkdir()
    for name in (ENDPOINTS_FILE, SETTINGS_FILE):
        path = tmp_path / "one" / name
        path.write_bytes(text.encode("latin-1"))
        command = "status" if name == ENDPOINTS_FILE else "up"
        words = ["one"] if command == "status" else ["--run", "one", "--dry-run"]
        if name == SETTINGS_FILE and text.startswith('{"'):
            path.write_text('{"nodes": "many"}')
        assert main([command, *words, "--runs-dir", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and str(path) in said and said.count("\n") == 1
