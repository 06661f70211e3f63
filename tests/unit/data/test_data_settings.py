from pathlib import Path

import pytest

from chess_datasets.pgn.sources import setting_sources
from rookery.config.data import SAMPLE, DataSettings, FeedSettings
from rookery.errors import SetupError


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
