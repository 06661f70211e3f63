from pathlib import Path
from typing import Any, get_args

import pytest

from chess_datasets.annotate.compose import Manner
from chess_datasets.commands.sample import filters_of
from chess_datasets.commands.settings.games import GamesSettings, MovesSettings, SampleSettings
from chess_datasets.commands.settings.positions import AnnotateSettings, PairsSettings, TasksSettings
from chess_datasets.commands.settings.shared import CommandSettings
from chess_datasets.pairs.preference import PairRecipe
from chess_datasets.pgn.sources import setting_sources
from chess_datasets.pgn.tags import Filters, Speed
from chess_datasets.positions.dataset import FORMS
from chess_datasets.positions.numbered import RARE_KINDS
from chess_datasets.positions.recipe import GamesRecipe, PositionRecipe
from chess_datasets.tasks.dataset import TaskRecipe
from chess_datasets.tasks.engine_moves import CandidateTargets
from chess_datasets.tasks.moves import MovesRecipe
from chess_datasets.tasks.puzzles import PuzzleFilter
from rookery.config.data import SAMPLE, DataSettings, FeedSettings
from rookery.errors import SetupError
from rookery.formats import FORMATS
from rookery.rookworld import LAYOUTS


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA_SOURCES", "DATA_SEED", "DATA_PORT", "FEED_SEED", "FEED_PORT", "ROOKERY_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    data, feed = DataSettings.parse([], prog="data"), FeedSettings.parse([], prog="feed")
    assert (data.port, data.grpc_port, feed.port, feed.depth) == (8001, 50052, 8005, 256)
    assert data.sources == feed.sources == SAMPLE
    assert data.shares == feed.shares == (0.2, 0.6, 0.2)


def test_each_program_has_variables_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PORT", "1234")
    assert DataSettings.parse([], prog="data").port == 1234


def test_the_feed_hears_what_the_service_is_told_about_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_SOURCES", "other.pgn")
    monkeypatch.setenv("DATA_SEED", "5")
    monkeypatch.setenv("DATA_PORT", "1")
    feed = FeedSettings.parse([], prog="feed")
    assert (feed.sources, feed.seed, feed.port) == ("other.pgn", 5, 8005)
    monkeypatch.setenv("FEED_SEED", "6")
    assert FeedSettings.parse([], prog="feed").seed == 6
    assert FeedSettings.parse(["--seed", "7"], prog="feed").seed == 7


def test_sources_are_files_and_patterns(tmp_path: Path) -> None:
    for name in ("b.pgn", "a.pgn", "c.pgn.zst"):
        (tmp_path / name).touch()
    sources = f"{tmp_path}/c.pgn.zst, {tmp_path}/*.pgn"
    found = setting_sources(sources)
    assert [Path(path).name for path in found] == ["c.pgn.zst", "a.pgn", "b.pgn"]


def test_sources_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "a.pgn").touch()
    monkeypatch.chdir(tmp_path)
    assert setting_sources("games/*.pgn") == ["games/a.pgn"]


@pytest.mark.parametrize("sources", ["missing.pgn", "nowhere/*.pgn", "", "/nowhere/at/all.pgn"])
def test_a_source_that_matches_nothing_is_named(sources: str) -> None:
    with pytest.raises(SetupError, match=rf"no file matches '{sources.replace('*', '[*]')}': set --sources"):
        setting_sources(sources)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--split", "test"], "split.*'train', 'heldout' or 'all'"),
        (["--seed", "-1"], "seed.*greater than or equal to 0"),
        (["--opening-share", "-1"], "opening_share"),
        (["--opening-share", "0", "--middlegame-share", "0", "--endgame-share", "0"], "must be positive"),
    ],
)
def test_wrong_values_are_named(argv: list[str], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        DataSettings.parse(argv, prog="data")


def command(kind: type[CommandSettings], *argv: str) -> Any:
    return kind.parse([*argv, "--out", "x"], prog="data")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--line-counts 0 3 --remarks 2", "--remarks: no effect with --line-counts"),
        ("--line-counts 9", "--line-counts 9: more than --lines 8"),
        ("--line-counts 3 --call-share 0.2", "lines are in UCI: --box uci"),
        (
            "--call-share 0.2 --style rookworld-p",
            "--call-share 0.2: prompts of style rookworld-p are no dialogue",
        ),
    ],
)
def test_flags_of_engine_moves_that_exclude_each_other(flags: str, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        command(TasksSettings, "engine-moves", "--count", "7", *flags.split())


def test_moves_are_written_as_the_prompt_or_the_list_of_a_tool_shows_them() -> None:
    for flags, box in (("", "uci"), ("--call-share 0.2", "san"), ("--style fen-legal-san", "san")):
        asked = command(TasksSettings, "engine-moves", "--count", "7", *flags.split())
        assert asked.engine_box == box


@pytest.mark.parametrize(
    ("settings", "recipe"),
    [
        (command(SampleSettings, "--count", "7"), PositionRecipe(7)),
        (command(GamesSettings), GamesRecipe()),
        (command(MovesSettings, "--count", "7"), MovesRecipe(7)),
        (command(PairsSettings, "--count", "7"), PairRecipe()),
        (command(TasksSettings, "next-fen", "--count", "7"), TaskRecipe("next-fen")),
        (command(TasksSettings, "engine-moves", "--count", "7"), CandidateTargets()),
        (command(AnnotateSettings, "--count", "7"), Manner()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_defaults_are_those_of_the_recipes(settings: CommandSettings, recipe: Any) -> None:
    more = {"shares": recipe.shares} if isinstance(recipe, PositionRecipe) else {}
    assert settings.recipe(type(recipe), **more) == recipe


def test_the_defaults_of_filters_let_all_pass() -> None:
    assert filters_of(command(GamesSettings)) == Filters()
    puzzles = command(TasksSettings, "puzzle", "--count", "1", "--puzzles", "p.csv")
    assert puzzles.recipe(PuzzleFilter, themes=frozenset(), without=frozenset()) == PuzzleFilter()


def test_the_choices_are_those_of_the_data_sets() -> None:
    def choices(kind: type[CommandSettings], name: str) -> set[str]:
        annotation = kind.model_fields[name].annotation
        return {choice for part in get_args(annotation) for choice in get_args(part) or (part,)} - {None, ...}  # type: ignore[arg-type]

    assert choices(SampleSettings, "speed") == {speed.value for speed in Speed}
    assert choices(SampleSettings, "form") == {*FORMS}
    assert choices(TasksSettings, "format") == {*FORMATS}
    assert choices(TasksSettings, "layout") == {*LAYOUTS}
    assert choices(TasksSettings, "only") - {type(None)} == {*RARE_KINDS}  # type: ignore[comparison-overlap]


def test_commands_read_variables_and_the_toml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.toml").write_text('[data_sample]\ncount = 3\nspeed = ["blitz"]\n[data]\nseed = 5\n')
    monkeypatch.setenv("ROOKERY_CONFIG", str(tmp_path / "run.toml"))
    monkeypatch.setenv("DATA_SEED", "5")
    monkeypatch.setenv("DATA_SAMPLE_SOURCE", '["a.pgn", "b.pgn"]')
    settings = command(SampleSettings)
    assert (settings.count, settings.speed, settings.seed) == (3, ("blitz",), 0)
    assert settings.source == ("a.pgn", "b.pgn")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--offset", "3", "--distinct"], "--offset, --distinct: choose one"),
        (["--ply-min", "3", "--jobs", "2"], "only data sets have --jobs, --ply-min: add --out"),
        (["--out", "x", "--style", "fen"], "without --out only: --style"),
        (["--game", "x", "--shares", "1", "0", "0"], "leave out --shares"),
    ],
)
def test_flags_without_effect_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        SampleSettings.parse(["--count", "1", *argv], prog="data")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--positions", "a.parquet", "--source", "b.pgn"], "--source, --positions: choose one"),
        (["--only", "check"], "--only check needs --source"),
        (["--ray", "auto", "--reward", "dns:///r:1"], "leave out --reward 'dns:///r:1'"),
        (["--key-env", "A", "--key-file", "b"], "--key-env, --key-file: choose one"),
    ],
)
def test_flags_that_exclude_each_other_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        command(PairsSettings, "--count", "1", *argv)
