"""Finds the files of games that the user names, and says what is wrong if they have nothing to sample."""

import glob
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chess_datasets.pgn.games import SkippedGame
from chess_datasets.store.files import STANDARD_INPUT, Source
from chess_datasets.store.folders import open_folder
from rookery.errors import SetupError
from rookery.masking import mask_setting
from rookery.remote import shipped
from rookery.trace import Split

SUFFIXES = (".pgn", ".pgn.zst", ".pgn.gz", ".pgn.bz2")
"""The files that a folder is searched for."""


def find_sources(names: Iterable[str | Path]) -> list[str]:
    """The files that the names stand for, sorted within each name and without duplicates.

    A folder stands for the PGN files in it and its subfolders. A name with `*`, `?` or `[...]` is a pattern;
    in a URL, only the end may be one. `-` is standard input. Raises `SetupError` if no file matches a name.
    """
    return list(dict.fromkeys(file for name in names for file in _files_of(str(name).strip())))


def setting_sources(sources: str) -> list[str]:
    """The files that the setting `sources` names: like `find_sources`, separated by commas. Raises
    `SetupError` if no file matches a name."""
    try:
        return find_sources(sources.split(","))
    except SetupError as error:
        raise SetupError(f"{error}: set --sources (DATA_SOURCES)") from error


def _files_of(name: str) -> list[str]:
    if name == STANDARD_INPUT:
        return [name]
    files = _at_url(name) if "://" in name else _on_disk(name) if name else []
    if not files:
        raise SetupError(f"no file matches {name!r}")
    return files


def _on_disk(name: str) -> list[str]:
    path = shipped(name)
    if path.is_dir():
        below = (str(file) for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        return sorted(file for file in below if file.endswith(SUFFIXES))
    if path.exists() or not glob.has_magic(name):
        return [str(path)] if path.exists() else []
    return sorted(file for file in glob.glob(name, recursive=True) if Path(file).is_file())  # noqa: PTH207


def _at_url(url: str) -> list[str]:
    folder, _, pattern = url.rpartition("/")
    if pattern and not glob.has_magic(pattern):
        return [url]
    remote = open_folder(folder)
    names = (name for name in remote.names() if not pattern or "/" not in name)
    matches = (name for name in names if (fnmatch(name, pattern) if pattern else name.endswith(SUFFIXES)))
    return [remote.place(name) for name in matches]


def nothing_to_sample(
    sources: Sequence[Source],
    split: Split,
    skipped: Sequence[SkippedGame],
    *,
    rejected: Mapping[str, int] = MappingProxyType({}),
) -> SetupError:
    """The error that names the files, the skipped games and how many games each filter rejected."""
    paths = ", ".join(repr(source.path) for source in sources)
    reasons = "; ".join(str(game) for game in skipped[:3]) or "no position to give"
    passed = ", ".join(f"{count} by {name}" for name, count in sorted(rejected.items()))
    return SetupError(
        f"nothing to sample in {paths} (split {split!r}): {len(skipped)} games skipped: {reasons}"
        + f"; games left out: {passed}" * bool(passed)
    )


def sources_terms(sources: Iterable[Source]) -> list[dict[str, Any]]:
    """What a manifest says of the files: their names, without folders and secrets, and their SHA-256."""
    return [asdict(source) | {"path": _name_of(source.path)} for source in sources]


def skipped_facts(by_defect: Counter[str], first: Iterable[SkippedGame]) -> dict[str, Any]:
    """What a manifest says of skipped games: how many, why, and the `first` in a line each."""
    lines = (f"{_name_of(game.path)} {str(game).removeprefix(game.path).strip()}" for game in first)
    return {
        "games": by_defect.total(),
        "by_defect": dict(sorted(by_defect.items())),
        "first": [line[:300] for line in lines],
    }


def _name_of(location: str) -> str:
    return str(mask_setting(location)).rpartition("/")[2]
