"""Presets and --dry-run: who wins, where a value came from, what a user reads."""

import tomllib
from pathlib import Path

import pytest
from pydantic import Field

from rookery import settings
from rookery.errors import SetupError
from rookery.settings import CONFIG_VARIABLE, PresetSettings, RunSettings


class Bakery(RunSettings, PresetSettings, env_prefix="BAKERY_"):
    """Settings of a service that does not exist."""

    oven: Path
    """Which one."""
    loaves: int = Field(default=10, gt=0)
    """Loaves in one batch."""
    flour: str | None = None
    """Kind of flour."""
    rye: bool = False
    """Bake with rye."""


class Patisserie(Bakery, env_prefix="PATISSERIE_"):
    """A bakery with settings of its own."""


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variables of the outside, and presets of our own."""
    for name in ("BAKERY_LOAVES", "BAKERY_PRESET", "ROOKERY_RUN", "ROOKERY_REDIS_URL", CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "presets"
    folder.mkdir()
    (folder / "sourdough.toml").write_text('[bakery]\noven = "stone"\nloaves = 4\nrye = true\nrun = "slow"\n')
    (folder / "cakes.toml").write_text("[cafe]\ntables = 3\n")
    (folder / "burnt.toml").write_text("[bakery]\ncroissants = 3\n")
    monkeypatch.setattr(settings, "presets_dir", lambda: folder)


def parse(*argv: str) -> Bakery:
    return Bakery.parse(list(argv), prog="bakery")


def test_a_preset_wins_over_defaults_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("--preset", "sourdough").loaves == 4
    config = tmp_path / "run.toml"
    config.write_text('[bakery]\nloaves = 3\npreset = "sourdough"\n')
    monkeypatch.setenv(CONFIG_VARIABLE, str(config))
    assert (parse().loaves, parse().rye) == (3, True)
    monkeypatch.setenv("BAKERY_LOAVES", "2")
    assert parse().loaves == 2
    assert parse("--loaves", "1").loaves == 1


def test_the_environment_can_name_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKERY_PRESET", "sourdough")
    assert parse().oven == Path("stone")


def test_an_unknown_preset_lists_them() -> None:
    with pytest.raises(SetupError, match="no preset 'bagel': choose from burnt, cakes, sourdough"):
        parse("--preset", "bagel")


def test_a_preset_of_others_says_so() -> None:
    with pytest.raises(SetupError, match="preset 'cakes' has no settings for bakery: it has cafe"):
        parse("--preset", "cakes")


def test_a_preset_with_an_unknown_setting_is_refused() -> None:
    with pytest.raises(SetupError, match="croissants"):
        parse("--preset", "burnt", "--oven", "gas")


def test_a_kind_of_service_takes_the_preset_of_its_kin() -> None:
    assert Patisserie.parse(["--preset", "sourdough"], prog="patisserie").loaves == 4


def test_dry_run_prints_every_value_with_its_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAKERY_LOAVES", "7")
    monkeypatch.setenv("ROOKERY_REDIS_URL", "redis://baker:secret@somewhere:1/0")
    with pytest.raises(SystemExit) as ended:
        parse("--preset", "sourdough", "--dry-run", "--run", "fast")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    sources = {line.split(" = ")[0]: line.split("  # ")[1] for line in said.splitlines() if " = " in line}
    assert sources == {
        "preset": "flag", "# redis_url": "environment", "run": "flag", "oven": "preset sourdough",
        "loaves": "environment", "rye": "preset sourdough",
    }  # fmt: skip
    assert "secret" not in said
    assert "# flour is not set" in said
    values = tomllib.loads(said)["bakery"]
    assert values | {"redis_url": ""} == {
        "preset": "sourdough", "redis_url": "", "run": "fast", "oven": "stone", "loaves": 7, "rye": True,
    }  # fmt: skip


def test_what_was_printed_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        parse("--oven", 'wood "and" stone', "--loaves", "5", "--dry-run")
    config = tmp_path / "again.toml"
    config.write_text(capsys.readouterr().out)
    monkeypatch.setenv(CONFIG_VARIABLE, str(config))
    assert parse() == parse("--oven", 'wood "and" stone', "--loaves", "5")
