"""The front page tells the truth: its commands exist, its requests get the answers it shows."""

import json
import re
import subprocess
from pathlib import Path

from launcher.settings import UpSettings
from rookery.config.data import FeedSettings
from rookery.config.inference import ServerSettings
from rookery.config.reward import RewardSettings
from rookery.config.rollouts import RolloutsSettings
from rookery.config.trainer import TrainerSettings
from rookery.settings import Settings
from tests.conftest import ROOT
from tests.curl import curls, run_curl
from tests.processes import serving

README = ROOT / "README.md"
TEXT = README.read_text()
POSITIONS, VERDICT, _ = curls(README)
SHOWN = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]


def test_the_positions_are_those_shown(tmp_path: Path) -> None:
    with serving("services.data", "--grpc-port", "0", log=tmp_path / "log") as url:
        assert run_curl(POSITIONS, {"http://localhost:8001": url}).json() == SHOWN[0]


def test_the_verdict_is_the_one_shown(tmp_path: Path, stockfish_path: str) -> None:
    flags = ["--grpc-port", "0", "--engines", "1", "--engine-path", stockfish_path]
    with serving("services.reward", *flags, log=tmp_path / "log") as url:
        verdict = run_curl(VERDICT, {"http://localhost:8080": url}).json()
    shown = SHOWN[1]
    assert verdict.keys() == shown.keys()
    if verdict["reward_version"] == shown["reward_version"]:
        assert verdict == shown
    # Another Stockfish has other numbers, but the same opinion.
    assert [verdict[key] for key in ("outcome", "move", "best")] == [
        shown[key] for key in ("outcome", "move", "best")
    ]


def test_make_knows_every_target_named() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", TEXT + (ROOT / "CONTRIBUTING.md").read_text()))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def test_no_model_is_tracked_by_mistake() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    sizes = {name: (ROOT / name).lstat().st_size for name in tracked.stdout.split("\0")[:-1]}
    assert not {name: size for name, size in sizes.items() if size > 20_000_000 or name.startswith("-")}


def test_links_lead_to_a_file_and_a_heading() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pages = {(ROOT / name): _without_code(ROOT / name) for name in tracked.stdout.split()}
    headings = {
        page: set(map(_anchor, re.findall(r"^#+ (.+)$", text, re.MULTILINE))) for page, text in pages.items()
    }
    assert _anchor("`GET /v1/x` and [the demo's](page.md)") == "get-v1x-and-the-demos"
    for page, text in pages.items():
        for path, _, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(#([^)\s]+))?\)", text):
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page} links to {path}"
            assert not anchor or anchor in headings[target], f"{page} links to {path}#{anchor}"


def _without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


def test_every_flag_named_exists() -> None:
    known = flags(UpSettings) | flags(RolloutsSettings) | {"--run", "--help"}
    ours = re.sub(r"docker compose [^`\n]*", "", TEXT)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])", ours)) <= known


def test_every_override_named_exists() -> None:
    services = {"inference": ServerSettings, "trainer": TrainerSettings}
    services |= {"reward": RewardSettings, "rollouts": RolloutsSettings, "feed": FeedSettings}
    learning = (ROOT / "docs/learning.md").read_text()
    named = re.findall(r"--set (\w+)\.(\w+)=", TEXT) + re.findall(r"`(\w+)\.(\w+)=", learning)
    assert len(named) > 10
    for service, name in named:
        assert name in services[service].model_fields


def flags(settings: type[Settings]) -> set[str]:
    """The flags of a settings class."""
    return {f"--{name.replace('_', '-')}" for name in settings.model_fields}
