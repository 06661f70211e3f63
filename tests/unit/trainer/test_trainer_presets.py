"""Every preset that is shipped sets what exists, and agrees with itself."""

import tomllib

import pytest

from launcher.settings import UpSettings
from rookery.config.data import FeedSettings
from rookery.config.finetune import SftSettings
from rookery.config.inference import ServerSettings
from rookery.config.reward import RewardSettings
from rookery.config.rollouts import RolloutsSettings
from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.settings import PresetSettings, preset_names, presets_dir, read_preset

TABLES: dict[str, type[PresetSettings]] = {
    "up": UpSettings,
    "feed": FeedSettings,
    "trainer": TrainerSettings,
    "inference": ServerSettings,
    "rollouts": RolloutsSettings,
    "reward": RewardSettings,
    "sft": SftSettings,
}
REQUIRED = {
    "trainer": ["--run-dir", "runs/x"],
    "reward": ["--model-url", "http://localhost:8007"],
    "sft": ["--data", "d.jsonl", "--out", "runs/x"],
}
CASES = [(name, table) for name in preset_names() for table in read_preset(name)]


def test_the_promised_ones_are_there() -> None:
    assert preset_names() == [
        "chess-gpt",
        "pychess-ppo",
        "qwen3-0.6b",
        "rook-small",
        "rookworld-full",
        "rookworld-mini",
        "tiny-cpu",
    ]


@pytest.mark.parametrize(("name", "table"), CASES)
def test_it_resolves_and_its_fields_exist(name: str, table: str) -> None:
    argv = ["--preset", name, *REQUIRED.get(table, [])]
    settings = TABLES[table].parse(argv, prog=table)
    for field, value in read_preset(name)[table].items():
        if value != "auto":
            assert str(getattr(settings, field)) == str(value), field


@pytest.mark.parametrize("name", preset_names())
def test_the_parts_of_a_run_agree(name: str) -> None:
    """What `rookery up` decides for a service must be what the preset sets for it alone."""
    tables = read_preset(name)
    up, rollouts, trainer = tables["up"], tables["rollouts"], tables["trainer"]
    assert up["model"] == trainer["model"]
    assert up["batch_groups"] == rollouts["batch_groups"] == trainer["batch_groups"]
    assert up["group_size"] == rollouts["group_size"]
    assert up.get("max_tokens") == rollouts.get("max_tokens")
    resolved = UpSettings.parse(["--preset", name], prog="up")
    assert resolved.staleness == RolloutsSettings.parse(["--preset", name], prog="rollouts").staleness
    assert rollouts.get("style") in (None, resolved.shown_style)
    served = tables.get("inference", {})
    assert served.get("thinking") == (up.get("thinking") if served else None)
    assert served.get("style", up.get("style")) == up.get("style")
    assert served.get("answer_tokens", up.get("max_tokens")) == up.get("max_tokens")
    assert served.get("max_model_len", 1 << 20) >= 2 * up.get("max_tokens", 0)


@pytest.mark.parametrize("name", preset_names())
def test_numbers_name_their_source(name: str) -> None:
    text = (presets_dir() / f"{name}.toml").read_text()
    assert text.startswith("# ")
    assert tomllib.loads(text)
    assert text.count("#") >= 6


def test_autobatch_takes_the_trainers_table() -> None:
    assert AutobatchSettings.parse(["--preset", "tiny-cpu"], prog="autobatch").row_tokens == 1024
