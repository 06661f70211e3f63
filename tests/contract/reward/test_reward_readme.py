"""The product page tells the truth: every command of it is executed, every field of it exists."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from rookery.access import AccessSettings
from rookery.answers import MAX_BOX_CHARS
from rookery.config.reward import RewardSettings
from rookery.middleware import MAX_BODY_BYTES
from rookery.schemes import TERMS, find_scheme
from rookery.trace import Outcome, ScoreItem, Verdict
from services.reward import shared_scorer
from services.reward.episodes import EpisodeRequest
from services.reward.requests import MAX_ITEMS
from tests.curl import run_curl

pytestmark = pytest.mark.stockfish

README = Path(__file__).resolve().parents[3] / "services" / "reward" / "README.md"
TEXT = README.read_text()
VERDICT_FIELDS = {field.name for field in dataclasses.fields(Verdict)}
CURLS = re.findall(r"^curl (?:[^'#\n]|'[^']*')*", TEXT, re.MULTILINE)
JSON = [re.sub(r"\s+//.*", "", block) for block in re.findall(r"```jsonc\n(.*?)```", TEXT, re.DOTALL)]


@pytest.fixture
def curl(service):
    def run(command: str) -> str:
        return run_curl(command, {"http://localhost:8080": service.url}).text

    return run


def test_every_curl_is_found() -> None:
    assert len(CURLS) == TEXT.count("curl -s") == 11


def test_score(curl) -> None:
    verdict = json.loads(curl(CURLS[0]))
    shown = json.loads(JSON[0])
    assert verdict.keys() == shown.keys() == VERDICT_FIELDS
    for field in ("outcome", "move", "best"):
        assert verdict[field] == shown[field]
    for field in ("engine", "components", "eval_before"):
        assert verdict[field].keys() == shown[field].keys()
    assert -1.0 < verdict["reward"] < -0.1


def test_values(curl) -> None:
    verdict, shown = json.loads(curl(CURLS[1])), json.loads(JSON[1])
    assert verdict["components"] == pytest.approx(shown["components"], abs=5e-4)
    for step, expected in zip(verdict["value_rewards"], shown["value_rewards"], strict=True):
        assert step == pytest.approx(expected, abs=5e-4)


def test_truth(curl) -> None:
    verdict = json.loads(curl(CURLS[2]))
    shown = json.loads(JSON[2])
    assert verdict["sentences"] == shown["sentences"]
    assert verdict["components"] == pytest.approx(shown["components"], abs=5e-4)
    assert verdict["reward"] == sum(verdict["components"].values())


@pytest.mark.parametrize("number", [3, 4, 5])
def test_rookworlds_tasks(curl, number: int) -> None:
    verdict = json.loads(curl(CURLS[number]))
    shown = json.loads(JSON[number])
    assert verdict.keys() == VERDICT_FIELDS
    assert verdict["components"].keys() == shown["components"].keys()
    assert verdict["outcome"] == shown["outcome"]
    if number > 3:
        assert {field: verdict[field] for field in shown} == shown
    else:
        assert 0.4 <= verdict["reward"] < 0.8


def test_batch(curl) -> None:
    verdicts = json.loads(curl(CURLS[6]))["verdicts"]
    for verdict, shown in zip(verdicts, json.loads(JSON[6])["verdicts"], strict=True):
        for field, value in shown.items():
            assert verdict[field] == value or str(verdict[field]).startswith(value.rstrip("."))


def test_episodes(curl) -> None:
    state, shown = json.loads(curl(CURLS[7])), json.loads(JSON[7])
    [turn], [shown_turn] = state.pop("episode")["turns"], shown.pop("episode")["turns"]
    assert turn.items() >= shown_turn.items()
    assert {field: state[field] for field in shown} == shown
    fields = {
        name
        for row in re.findall(r"^\| (`.*?`) \|", section("episodes"), re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert fields == EpisodeRequest.model_fields.keys()


def section(route: str) -> str:
    """The page's text about a route."""
    return TEXT.partition(f"## POST /v1/{route}\n")[2].partition("\n## ")[0]


def test_probes(curl) -> None:
    assert json.loads(curl(CURLS[8])) == {"status": "alive"}
    assert json.loads(curl(CURLS[9])) == {"status": "ready"}
    assert "rookery_reward_seconds_bucket" in curl(CURLS[10])


async def test_the_grpc_example(service) -> None:
    example = re.search(r"```python\n(from rookery.clients.*?)```", TEXT, re.DOTALL)
    assert example is not None
    body = example[1].replace("localhost:50051", service.grpc_target)
    lines = [f"    {line}" for line in body.splitlines()] + ["    return verdicts"]
    names: dict[str, Any] = {}
    exec("\n".join(["async def example(fen, completions):", *lines]), names)
    fen = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"
    verdicts = await names["example"](fen, [r"\boxed{Ra8#}", "nothing"])
    assert [verdict.outcome for verdict in verdicts] == [Outcome.LEGAL, Outcome.NO_BOX]


def test_docs_are_served(service) -> None:
    assert "swagger" in httpx.get(f"{service.url}/docs").text


def test_the_command(stockfish_path: str) -> None:
    line = next(line for line in TEXT.splitlines() if " score " in line)
    arguments = shlex.split(line)[1:]
    for extra in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, *arguments, *extra],
            capture_output=True,
            text=True,
            timeout=60,
            env={"REWARD_ENGINE_PATH": stockfish_path},
        )
        assert done.returncode == 0, done.stderr
        assert "Nxg5" in done.stdout
    assert json.loads(done.stdout)["reward"] == 0.0


def test_the_python_example(stockfish_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_ENGINE_PATH", stockfish_path)
    example = re.search(r"```python\n(from services.*?)```", TEXT, re.DOTALL)
    assert example is not None
    setup, scored, judged = re.fullmatch(
        r"(.*)\n(reward\(.*?)\n(verdict\(.*?)\n", example[1], re.DOTALL
    ).groups()
    names: dict[str, object] = {}
    exec(setup, names)
    try:
        assert eval(scored, names) == 0.0
        assert eval(judged, names) is Outcome.ILLEGAL
    finally:
        shared_scorer().close()


def rows(first_cell: str) -> list[list[str]]:
    """The table whose rows start with `first_cell`, as lists of cells."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if re.match(rf"\| {first_cell}", line)
    ]


def test_the_tables() -> None:
    fields = [row[0].strip("`") for row in rows("`[a-z]+` \\| (string|boolean|array)")]
    assert fields == [field.name for field in dataclasses.fields(ScoreItem)]
    prices = {row[0].strip("`"): row[1] for row in rows("`[a-z_]+` \\| -1\\.\\d")}
    assert prices == {
        outcome.value: f"{find_scheme('delta').penalty(outcome):g}"
        for outcome in Outcome
        if outcome != "legal"
    }
    settings = {row[1].strip("`"): row[2] for row in rows("`-")}
    own = {n: f for n, f in RewardSettings.model_fields.items() if n not in AccessSettings.model_fields}
    assert list(settings) == [f"REWARD_{name.upper()}" for name in own]
    for name, field in own.items():
        if name not in ("engines", "engine_path", "redis_url"):
            assert settings[f"REWARD_{name.upper()}"] == str(field.default).removesuffix(".0"), name


def test_the_limits() -> None:
    assert f"Up to {MAX_ITEMS} items" in TEXT
    assert f"over {MAX_BODY_BYTES >> 20} MiB" in TEXT
    assert f"longer than {MAX_BOX_CHARS} characters" in TEXT
    schemes = {
        row[0].strip("`").removesuffix("(N)"): row[1]
        for row in rows("`[a-z]+(\\(N\\))?` \\| -?[01] to")
        if row[0] != "`legal`"
    }
    assert schemes == {term.name: f"{term.low:g} to {term.high:g}" for term in TERMS.values()} | {
        "length": "-1 to 0",
        "candidates": "0 to 1",
        "values": "0 to 1",
    }
