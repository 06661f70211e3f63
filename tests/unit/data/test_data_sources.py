from pathlib import Path

import fsspec
import pytest

from chess_datasets.pgn.sources import find_sources
from rookery.errors import SetupError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.pgn", "a.pgn.zst", "deep/er/c.pgn.gz", "notes.txt", ".hidden.pgn", "odd[1].pgn"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(found: list[str], folder: Path) -> list[str]:
    return [str(Path(name).relative_to(folder)) for name in found]


def test_a_folder_gives_its_games_and_those_below(folder: Path) -> None:
    assert names(find_sources([folder]), folder) == ["a.pgn.zst", "b.pgn", "deep/er/c.pgn.gz", "odd[1].pgn"]


def test_a_file_is_itself_whatever_its_name(folder: Path) -> None:
    assert names(find_sources([folder / "odd[1].pgn", folder / "notes.txt"]), folder) == [
        "odd[1].pgn",
        "notes.txt",
    ]


def test_patterns(folder: Path) -> None:
    assert names(find_sources([f"{folder}/*.pgn*", f"{folder}/**/*.gz"]), folder) == [
        "a.pgn.zst",
        "b.pgn",
        "odd[1].pgn",
        "deep/er/c.pgn.gz",
    ]


def test_no_file_twice(folder: Path) -> None:
    assert len(find_sources([folder / "b.pgn", folder, f"{folder}/*.pgn"])) == 4


def test_names_may_be_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert find_sources(["b.pgn", "deep", "*.zst"]) == ["b.pgn", "deep/er/c.pgn.gz", "a.pgn.zst"]


def test_standard_input() -> None:
    assert find_sources(["-"]) == ["-"]


def test_urls() -> None:
    files = fsspec.filesystem("memory")
    for name in ("a.pgn", "b.pgn.zst", "deep/c.pgn", "notes.txt"):
        files.pipe(f"/games-of-sources/{name}", b"")
    root = "memory://games-of-sources"
    assert find_sources([f"{root}/any.pgn"]) == [f"{root}/any.pgn"]
    assert find_sources([f"{root}/"]) == [f"{root}/{name}" for name in ("a.pgn", "b.pgn.zst", "deep/c.pgn")]
    assert find_sources([f"{root}/*.pgn*"]) == [f"{root}/{name}" for name in ("a.pgn", "b.pgn.zst")]
    files.rm("/games-of-sources", recursive=True)


@pytest.mark.parametrize("name", ["missing.pgn", "nowhere/*.pgn", "", "memory://nothing-here/*.pgn"])
def test_a_name_without_a_file_is_an_error(name: str) -> None:
    with pytest.raises(SetupError, match="no file matches"):
        find_sources([name])


def test_a_folder_without_games_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no file matches"):
        find_sources([tmp_path])
