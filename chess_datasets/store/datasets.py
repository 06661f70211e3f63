"""The files of a data set besides its records: its manifest, and the parts of unfinished work.

    OUT/manifest.json             sources, settings and versions, and the SHA-256 of the files
    OUT/parts/terms.json          the terms of the work, such as its settings and sources
    OUT/parts/000012.parquet      the records of part 12, with its counts

Interrupted work is continued from its parts, but only under the same terms. The parts are deleted once the
whole data set is written.
"""

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Generic, TypeVar

import chess

import rookery
from chess_datasets.store.folders import Folder, WrittenFile
from chess_datasets.store.parquet import SUFFIX, Kind, describe, read_records, write_records
from rookery.errors import SetupError, changed_settings

MANIFEST = "manifest.json"

_FOLDER = "parts"
_TERMS = f"{_FOLDER}/terms.json"

R = TypeVar("R")


def write_manifest(
    folder: Folder,
    kind: str,
    written: Iterable[WrittenFile],
    *,
    terms: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes and returns the manifest. `terms` determine the data set, `facts` are its statistics."""
    manifest = {
        "kind": kind,
        "outputs": [{"path": file.name, "size": file.size, "sha256": file.sha256} for file in written],
        "terms": dict(terms),
        **facts,
        "versions": {
            "rookery": rookery.__version__,
            "python": platform.python_version(),
            "chess": chess.__version__,
            "pyarrow": version("pyarrow"),
        },
    }
    folder.write_bytes(MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
    return manifest


class Parts(Generic[R]):
    """The parts of one data set. `done` has the numbers of those that are written. Raises `SetupError` if
    existing parts were made under other terms. The message names the differences."""

    def __init__(self, folder: Folder, kind: Kind[R], *, terms: Mapping[str, Any]) -> None:
        self.folder = folder
        self._kind = kind
        names = folder.names(below=_FOLDER)
        parts = [name for name in names if name.endswith(SUFFIX)]
        self.done = {int(name.removeprefix(f"{_FOLDER}/").removesuffix(SUFFIX)) for name in parts}
        if self.done and _TERMS in names:
            self._check_terms(json.loads(folder.read_bytes(_TERMS)), terms)
        else:
            folder.write_bytes(_TERMS, json.dumps(terms, indent=2, sort_keys=True).encode())

    def write(self, number: int, records: Iterable[R], *, counts: Mapping[str, int]) -> None:
        notes = {name: str(count) for name, count in counts.items()}
        write_records(self.folder, _name_of(number), self._kind, records, notes=notes)
        self.done.add(number)

    def read(self, number: int) -> Iterator[R]:
        return read_records(self.folder, _name_of(number), self._kind)

    def counts(self, number: int) -> dict[str, int]:
        notes = describe(self.folder, _name_of(number)).notes
        return {name: int(count) for name, count in notes.items()}

    def clear(self) -> None:
        """Deletes the parts, then the terms: parts that remain if this is killed still have their terms."""
        for number in sorted(self.done):
            self.folder.remove(_name_of(number))
        self.folder.remove(_TERMS)
        self.done = set()

    def _check_terms(self, stored: Mapping[str, Any], terms: Mapping[str, Any]) -> None:
        if changes := changed_settings(stored, json.loads(json.dumps(terms))):
            raise SetupError(
                f"{self.folder.place(_FOLDER)!r} was begun with other settings: {changes}. "
                "Use the same settings, or choose another --out"
            )


def _name_of(number: int) -> str:
    return f"{_FOLDER}/{number:06d}{SUFFIX}"
