"""An index of the games of a file, which gives access to any game without reading the others.

`FILE.index.parquet` has one row per game, in order: its offset in the plain text, its id and its tags. Any
Parquet reader can query it. The metadata list the offsets at which reading can start: anywhere in plain text,
at each frame of a `pzstd` file, or only at the start of any other compressed file. At most a few row groups
of the index are in memory.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from chess_datasets.pgn.games import FIRST_HELDOUT
from chess_datasets.pgn.pieces import Piece
from chess_datasets.pgn.scanner import Scanner
from chess_datasets.store.files import STANDARD_INPUT, Source, open_bytes
from chess_datasets.store.folders import open_file
from chess_datasets.store.parquet import open_parquet
from rookery.errors import InvalidInput, SetupError
from rookery.pgn.rawgame import Defect, RawGame
from rookery.trace import Split

SUFFIX = ".index.parquet"
VERSION = 1
ROWS = 1 << 16
"""Rows per row group. One row group is read to find a game."""

HEADER_KEY = b"rookery.index"
"""The metadata key of an `IndexHeader`, stored as JSON."""

GAME_ID = re.compile(r"[0-9a-f]{16}")
_COLUMNS_KEPT = 16
_EDGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Describes the indexed file. `entries` are offsets to start at: as stored, and in the plain text."""

    source: Source
    edges: str
    is_text: bool
    entries: tuple[tuple[int, int], ...]
    games: int
    train: tuple[int, ...]
    """The number of sound games of this split in each row group; `heldout` likewise."""
    heldout: tuple[int, ...]
    version: int = VERSION

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes, place: str) -> Self:
        header = json.loads(data)
        if header["version"] != VERSION:
            raise InvalidInput(
                f"{place!r} is an index of version {header['version']!r}: "
                f"version {VERSION} is read here; write it again, or remove it"
            )
        for name in ("train", "heldout"):
            header[name] = tuple(header[name])
        entries = tuple((stored, plain) for stored, plain in header.pop("entries"))
        return cls(source=Source(**header.pop("source")), entries=entries, **header)


def edges_hash(location: str) -> str:
    """A hash of the size, the beginning and the end of a file, to detect that a file has changed."""
    with open_bytes(location) as file:
        size = file.seek(0, 2)
        digest = hashlib.sha256(str(size).encode())
        for start in (0, max(0, size - _EDGE_BYTES)):
            file.seek(start)
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()


def index_location(location: str) -> str:
    """The location of a file's index."""
    return location + SUFFIX


def find_index(location: str) -> "GameIndex | None":
    """The index beside a file, or None if there is none. Raises `SetupError` if the index cannot be read, or
    belongs to another file and must be made again."""
    if location == STANDARD_INPUT:
        return None
    try:
        index = GameIndex(location)
    except SetupError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if index.header.edges != edges_hash(location):
        index.close()
        raise SetupError(
            f"{index_location(location)!r} belongs to another file: write it again, or remove it"
        )
    return index


class GameIndex:
    """The index beside the file at `location`. Thread-safe. Raises `SetupError` if the index cannot be read;
    `InvalidInput` if the file is not an index, or has another version."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = Lock()
        place = index_location(location)
        folder, name = open_file(place)
        with ExitStack() as stack:
            self._file = open_parquet(stack.enter_context(folder.read(name)), place)
            header = (self._file.metadata.metadata or {}).get(HEADER_KEY)
            if header is None:
                raise InvalidInput(f"{place!r} is not an index of games")
            self.header = IndexHeader.from_json(header, place)
            self._open_files = stack.pop_all()
        self._games_before = {
            "train": [0, *accumulate(self.header.train)],
            "heldout": [0, *accumulate(self.header.heldout)],
        }
        self._column = lru_cache(_COLUMNS_KEPT)(self._read_column)

    def __len__(self) -> int:
        return self.header.games

    @property
    def source(self) -> Source:
        return self.header.source

    @property
    def broken(self) -> Sequence[RawGame]:
        """Always empty: a defect is read together with its game."""
        return ()

    def close(self) -> None:
        self._open_files.close()

    def count(self, split: Split) -> int:
        """The number of a split's games. The split `all` includes broken games."""
        return len(self) if split == "all" else self._games_before[split][-1]

    def number(self, split: Split, index: int) -> int:
        """The number of the game at `index` among those of a split, both counted from 0."""
        if split == "all":
            return index
        games_before = self._games_before[split]
        group = bisect_right(games_before, index) - 1
        ids, sound = self._column(group, "id"), self._column(group, "defect") == ""
        heldout = ids >= np.uint64(FIRST_HELDOUT)
        members = sound & (heldout if split == "heldout" else ~heldout)
        return group * ROWS + int(np.flatnonzero(members)[index - games_before[group]])

    def find(self, id: str) -> int | None:
        """The number of the first game with an id of 16 hex digits, or None. Reads the ids up to it."""
        if not GAME_ID.fullmatch(id):
            return None
        key = np.uint64(int(id, 16))
        for group in range(self._file.num_row_groups):
            rows = np.flatnonzero(self._read_column(group, "id") == key)
            if len(rows):
                return group * ROWS + int(rows[0])
        return None

    def raw(self, number: int) -> RawGame:
        defect = str(self._cell(number, "defect"))
        offset = int(self._cell(number, "offset"))
        if defect:
            return RawGame(number + 1, b"", offset, Defect(defect), "as the index says")
        end = int(self._cell(number + 1, "offset")) if number + 1 < len(self) else None
        scanner = Scanner()
        scanner.rebase(games=number, size=offset)
        games = [*scanner.feed(b"".join(self._text(offset, end))), *scanner.finish()]
        return games[0]

    def _text(self, offset: int, end: int | None) -> Iterator[bytes]:
        """The plain text of the file from `offset` to `end`."""
        if self.header.is_text:
            yield from Piece(self._location, offset, end, is_text=True).blocks()
            return
        entry = bisect_right(self.header.entries, offset, key=lambda entry: entry[1]) - 1
        stored, position = self.header.entries[entry]
        for block in Piece(self._location, stored).blocks():
            last = len(block) if end is None else end - position
            yield block[max(0, offset - position) : max(0, last)]
            position += len(block)
            if end is not None and position >= end:
                return

    def _cell(self, number: int, name: str) -> Any:
        return self._column(number // ROWS, name)[number % ROWS]

    def _read_column(self, group: int, name: str) -> NDArray[Any]:
        with self._lock:
            column = self._file.read_row_group(group, columns=[name])[name]
        return np.asarray(column.to_numpy())
