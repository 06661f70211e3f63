"""Stores long work in parts, each in a file of its own, so that interrupted work can be continued.

        OUT/parts/terms.json          the terms of the work
    OUT/parts/000012.parquet      the records of part 12, with its counts

Work is continued only under the same terms. The parts are deleted once the whole is written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from rookery.errors import SetupError
from services.data.store.storage import Folder
from services.data.store.tables import SUFFIX, Kind, describe, read_records, write_records

R = TypeVar("R")

_FOLDER = "parts"
_TERMS = f"{_FOLDER}/terms.json"


class Parts(Generic[R]):
    """The parts of one job.

    Raises:
        SetupError: existing parts were made under other terms; the message names the differences.
    """

    def __init__(self, folder: Folder, kind: Kind[R], *, terms: Mapping[str, Any]) -> None:
        self._folder = folder
        self._kind = kind
        names = folder.names(below=_FOLDER)
        self.done = {_number_of(name) for name in names if name.endswith(SUFFIX)}
        if self.done and _TERMS in names:
            self._check(json.loads(folder.read_bytes(_TERMS)), terms)
        else:
            folder.write_bytes(_TERMS, json.dumps(terms, indent=2, sort_keys=True).encode())

    def write(self, number: int, records: Iterable[R], *, counts: Mapping[str, int]) -> None:
        """Writes part `number`, which is then done."""
        notes = {name: str(count) for name, count in counts.items()}
        write_records(self._folder, _name_of(number), self._kind, records, notes=notes)
        self.done.add(number)

    def read(self, number: int) -> Iterator[R]:
        """The records of part `number`."""
        return read_records(self._folder, _name_of(number), self._kind)

    def counts(self, number: int) -> dict[str, int]:
        """The counts stored with part `number`."""
        notes = describe(self._folder, _name_of(number)).notes
        return {name: int(count) for name, count in notes.items()}

    def clear(self) -> None:
        """Deletes the parts, then the terms, so that remaining parts have their terms if this is killed."""
        for number in sorted(self.done):
            self._folder.remove(_name_of(number))
        self._folder.remove(_TERMS)
        self.done = set()

    def _check(self, begun: Mapping[str, Any], terms: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(terms))
        differing = [
            f"{name} was {begun.get(name)!r}, is {wanted.get(name)!r}"
            for name in sorted({*begun, *wanted})
            if begun.get(name) != wanted.get(name)
        ]
        if differing:
            raise SetupError(
                f"{self._folder.place(_FOLDER)!r} was begun otherwise: {'; '.join(differing)}. "
                "Ask for the same, or choose another --out"
            )


def _name_of(number: int) -> str:
    return f"{_FOLDER}/{number:06d}{SUFFIX}"


def _number_of(name: str) -> int:
    return int(name.removeprefix(f"{_FOLDER}/").removesuffix(SUFFIX))
