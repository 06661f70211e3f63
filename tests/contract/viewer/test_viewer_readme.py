"""The viewer's page of documentation tells the truth: its commands work, its settings exist."""

import re
from pathlib import Path

import httpx

from rookery.access import AccessSettings
from rookery.config.viewer import ViewerSettings
from tests.conftest import ROOT
from tests.curl import run_curl
from tests.processes import serving
from tests.viewed_runs import write_run

TEXT = (ROOT / "services" / "viewer" / "README.md").read_text()
CURLS = re.findall(r"^curl .*$", TEXT, re.MULTILINE)


def test_every_curl_is_answered(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "my-run", seed=0)
    command = ("services.viewer", "--runs-dir", str(tmp_path / "runs"))
    assert len(CURLS) == TEXT.count("curl -s") == 13
    with serving(*command, log=tmp_path / "log") as url:
        answers = {curl: run_curl(curl, {"http://localhost:8010": url}) for curl in CURLS}
        schema = httpx.get(f"{url}/openapi.json").json()
    assert {curl: answer.status_code for curl, answer in answers.items()} == dict.fromkeys(CURLS, 200)
    for named in re.findall(r"`(?:GET /api/runs/RUN)?(/[a-z]+)(?:/ID|/OTHER|\?[^`]*)?`", TEXT):
        assert any(path.startswith(f"/api/runs/{{run}}{named}") for path in schema["paths"]), named


def test_the_settings() -> None:
    rows = re.findall(r"^\| `--[a-z-]+` \| `(\w+)` \| ([^|]*?) ?\|", TEXT, re.MULTILINE)
    fields = {
        name: field
        for name, field in ViewerSettings.model_fields.items()
        if name not in AccessSettings.model_fields  # docs/security.md has them
    }
    assert dict(rows) == {f"VIEWER_{name.upper()}": str(field.default) for name, field in fields.items()}
