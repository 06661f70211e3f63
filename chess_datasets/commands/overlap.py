"""`rookery data overlap`: counts the positions of exams that are in data sets and archives."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chess_datasets.commands.settings.games import OverlapSettings
from chess_datasets.jobs import Progress
from chess_datasets.positions.distinct import position_key
from chess_datasets.positions.exams import fens_of_file, positions_by_row
from chess_datasets.store.files import identify
from rookery.errors import InvalidInput, SetupError
from rookery.hub import MANIFEST_FILE

_LISTED = 1_000
"""The most positions that are named."""
_NOT_DATA = frozenset({"exams", "sources", "evaluation"})
"""Files of a manifest that were not trained on: those left out, whole games, and those for evaluation."""


def overlap(settings: OverlapSettings) -> int:
    """Runs the command and returns the exit status."""
    places = [_files_of_data(text) for text in settings.data]
    for setting, names in (("exams", [Path(path).name for path in settings.exams]),
                           ("--data", [name for name, _, _ in places])):  # fmt: skip
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise SetupError(f"{setting}: two have the name {twice[0][:200]!r}")
    exams: dict[str, dict[int, str]] = {}
    for path in settings.exams:
        exams[Path(path).name] = {position_key(fen): fen for fen in fens_of_file(path)}
        if not exams[Path(path).name]:
            raise InvalidInput(f"{str(path)[:200]!r} holds no position")
    by_key: dict[int, list[str]] = defaultdict(list)
    for name, keys in exams.items():
        for key in keys:
            by_key[key].append(name)
    occurrences: dict[int, Counter[str]] = defaultdict(Counter)
    data = []
    with Progress() as progress:
        for name, files, missing in places:
            data.append(
                _search(name, files, missing, by_key=by_key, occurrences=occurrences, progress=progress)
            )
    result = {
        "exams": [
            {"name": name, "positions": len(keys), "sha256": identify(path).sha256,
             "seen": {item["name"]: sum(item["name"] in occurrences[key] for key in keys) for item in data}}
            for (name, keys), path in zip(exams.items(), settings.exams, strict=True)
        ],
        "data": data,
        "positions": [
            {"exams": by_key[key], "fen": exams[by_key[key][0]][key], "data": dict(counts)}
            for key, counts in list(occurrences.items()) if counts
        ][:_LISTED],
    }  # fmt: skip
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _files_of_data(text: str) -> tuple[str, list[Path], list[str]]:
    """A name, its files, and those that a manifest names and that are not here."""
    name, _, place = text.partition("=")
    path = Path(place)
    if path.is_file():
        return name, [path], []
    if not path.is_dir():
        raise SetupError(f"--data {text[:200]!r}: there is no {place[:200]!r}")
    files, missing = sorted((path / "archive").rglob("*.parquet")), list[str]()
    for manifest in (path / MANIFEST_FILE, path / "model" / MANIFEST_FILE):
        if manifest.is_file():
            for named, sha256 in dict.fromkeys(_files_of(json.loads(manifest.read_bytes()))):
                here = [p for p in (Path(named), manifest.parent / named) if p.is_file()]
                same = next((p for p in here if identify(p).sha256 == sha256.removeprefix("sha256:")), None)
                files, missing = ([*files, same], missing) if same else (files, [*missing, named])
    return name, files, missing


def _files_of(manifest: Any) -> Iterator[tuple[str, str]]:
    """The files with a SHA-256 anywhere in a manifest."""
    if isinstance(manifest, Mapping):
        if isinstance(path := manifest.get("path"), str) and isinstance(
            digest := manifest.get("sha256"), str
        ):
            yield path, digest
        for key, value in manifest.items():
            if key not in _NOT_DATA:
                yield from _files_of(value)
    elif isinstance(manifest, list):
        for value in manifest:
            yield from _files_of(value)


def _search(
    name: str, files: Sequence[Path], missing: Sequence[str], *,
    by_key: Mapping[int, Any], occurrences: Mapping[int, Counter[str]], progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Counts the exams' positions of some files in `occurrences`. Returns what was read."""
    positions = unread = 0
    for path in files:
        progress.begin(f"read {path.name}", unit="rows")
        for fens in positions_by_row(str(path)):
            progress.advance(1)
            keys = set(map(position_key, fens))
            positions, unread = positions + len(keys), unread + (not keys)
            for key in keys & by_key.keys():
                occurrences[key][name] += 1
    return {
        "name": name, "positions": positions, "unread": unread, "files": len(files), "missing": len(missing),
        "missing_files": list(missing), "sha256": {path.name: identify(path).sha256 for path in files},
    }  # fmt: skip
