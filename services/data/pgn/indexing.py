"""Writes the index of a file of games. `services.data.pgn.index` reads it."""

from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from itertools import accumulate
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rookery.processes.workers import Workers
from services.data.jobs import Progress
from services.data.pgn.games import FIRST_HELDOUT
from services.data.pgn.index import HEADER_KEY, ROWS, IndexHeader, edges_hash, index_location
from services.data.pgn.pieces import pieces_of
from services.data.pgn.rawgame import RawGame
from services.data.pgn.reader import handle_file
from services.data.pgn.tags import Facts, read_facts
from services.data.store.files import Fingerprint, identify
from services.data.store.folders import open_file

_NAMES = pa.dictionary(pa.int32(), pa.string())
_TYPES = {
    "white_elo": pa.uint16(),
    "black_elo": pa.uint16(),
    "base_s": pa.uint32(),
    "increment_s": pa.uint16(),
}
_FLAGS = ("bot", "evals")
_FACTS = tuple(field.name for field in fields(Facts))
_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.uint64(), nullable=False),
        pa.field("id", pa.uint64(), nullable=False),
        pa.field("defect", pa.string(), nullable=False),
        *(pa.field(name, pa.bool_() if name in _FLAGS else _TYPES.get(name, _NAMES)) for name in _FACTS),
    ]
)


def write_index(location: str, *, jobs: int = 1) -> IndexHeader:
    """Writes the index beside a file. Returns the index's description of the file.

    Raises:
        SetupError: the file cannot be read, or the index cannot be written.
    """
    pieces, sizes = pieces_of(location), [0]
    fingerprint = Fingerprint(location)
    folder, name = open_file(index_location(location))
    with Progress() as progress, Workers(jobs) as workers, ThreadPoolExecutor(1) as aside:
        progress.begin(f"index {location.rpartition('/')[2]}", unit="games")
        hashing = aside.submit(identify, location) if len(pieces) > 1 else None
        with folder.write(name) as draft, pq.ParquetWriter(draft, _SCHEMA, compression="zstd") as writer:
            table = _Table(writer)
            found = handle_file(location, _Indexer(), workers, fingerprint.update, sizes.append)
            for rows in found:
                progress.advance(len(rows.offsets))
                table.add(rows)
            table.flush()
            starts = zip((piece.start for piece in pieces), accumulate(sizes), strict=False)
            header = IndexHeader(
                source=hashing.result() if hashing else fingerprint.source,
                edges=edges_hash(location),
                is_text=pieces[0].is_text,
                entries=((0, 0),) if pieces[0].is_text else tuple(starts),
                games=table.games,
                train=tuple(table.train),
                heldout=tuple(table.heldout),
            )
            writer.add_key_value_metadata({HEADER_KEY: header.to_json()})
    return header


class _Rows:
    """The rows of some games, as columns."""

    def __init__(self, raws: Sequence[RawGame] = ()) -> None:
        self.games = 0
        judged = [raw.checked() for raw in raws]
        self.offsets = np.array([raw.offset for raw in judged], np.uint64)
        self.ids = np.array([0 if raw.defect else int(raw.id, 16) for raw in judged], np.uint64)
        self.defects = [raw.defect.value if raw.defect else "" for raw in judged]
        facts = [read_facts(raw) for raw in judged]
        self.facts = {name: [getattr(said, name) for said in facts] for name in _FACTS}

    def rebase(self, *, games: int, size: int) -> None:
        self.offsets += np.uint64(size)

    def merge(self, later: Self, /) -> None:
        self.offsets = np.concatenate((self.offsets, later.offsets))
        self.ids = np.concatenate((self.ids, later.ids))
        self.defects += later.defects
        for name, values in later.facts.items():
            self.facts[name] += values


class _Indexer:
    """Turns every game into a row of the index."""

    @property
    def keep(self) -> None:
        """None: every game is indexed."""

    def choose(self, games: Iterable[RawGame]) -> Generator[RawGame, None, _Rows]:
        """Yields all games, so there are no rows for games not chosen."""
        yield from games
        return _Rows()

    def handle(self, games: Sequence[RawGame]) -> _Rows:
        """The rows of some games."""
        return _Rows(games)


class _Table:
    """Writes rows in row groups, and counts the games of each split in each group."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.games = 0
        self.train: list[int] = []
        self.heldout: list[int] = []
        self._writer = writer
        self._rows = _Rows()

    def add(self, rows: _Rows) -> None:
        self._rows.merge(rows)
        while len(self._rows.offsets) >= ROWS:
            self._write(ROWS)

    def flush(self) -> None:
        if len(self._rows.offsets):
            self._write(len(self._rows.offsets))

    def _write(self, count: int) -> None:
        rows, self._rows = self._rows, _Rows()
        first, rest = _cut(rows, count)
        self._rows = rest
        sound = np.array([not defect for defect in first.defects])
        heldout = first.ids >= np.uint64(FIRST_HELDOUT)
        self.train.append(int((sound & ~heldout).sum()))
        self.heldout.append(int((sound & heldout).sum()))
        self.games += count
        columns = [first.offsets, first.ids, first.defects, *(first.facts[name] for name in _FACTS)]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), row_group_size=count)


def _cut(rows: _Rows, count: int) -> tuple[_Rows, _Rows]:
    first, rest = _Rows(), _Rows()
    for part, taken in ((first, slice(None, count)), (rest, slice(count, None))):
        part.offsets, part.ids = rows.offsets[taken], rows.ids[taken]
        part.defects = rows.defects[taken]
        part.facts = {name: values[taken] for name, values in rows.facts.items()}
    return first, rest
