"""Writes the index of a file of games. `chess_datasets.pgn.index` reads it."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from chess_datasets.jobs import Progress
from chess_datasets.pgn.games import FIRST_HELDOUT
from chess_datasets.pgn.index import HEADER_KEY, ROWS, IndexHeader, edges_hash, index_location
from chess_datasets.pgn.pieces import pieces_of
from chess_datasets.pgn.reader import handle_file
from chess_datasets.pgn.scanner import Keep
from chess_datasets.pgn.tags import Facts, read_facts
from chess_datasets.store.files import Source
from chess_datasets.store.folders import open_file
from rookery.pgn.rawgame import RawGame
from rookery.processes.workers import Workers

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
    """Writes the index beside a file. Returns the index's description of the file. Raises `SetupError` if the
    file cannot be read, or the index cannot be written."""
    pieces, sizes = pieces_of(location), [0]
    sources: list[Source] = []
    folder, name = open_file(index_location(location))
    with Progress() as progress, Workers(jobs) as workers:
        progress.begin(f"index {location.rpartition('/')[2]}", unit="games")
        with folder.write(name) as draft, pq.ParquetWriter(draft, _SCHEMA, compression="zstd") as writer:
            table = _Table(writer)
            for findings in handle_file(location, _Indexer(), workers, sources.append, sizes.append):
                progress.advance(len(findings.rows))
                table.add(findings.rows)
            table.flush()
            starts = zip((piece.start for piece in pieces), accumulate(sizes), strict=False)
            header = IndexHeader(
                source=sources[0],
                edges=edges_hash(location),
                is_text=pieces[0].is_text,
                entries=((0, 0),) if pieces[0].is_text else tuple(starts),
                games=table.games,
                train=tuple(table.train),
                heldout=tuple(table.heldout),
            )
            writer.add_key_value_metadata({HEADER_KEY: header.to_json()})
    return header


Row = tuple[Any, ...]
"""The values of a game in the order of the schema."""


@dataclass(slots=True)
class _Rows:
    """The rows of some games."""

    games: int = 0
    rows: list[Row] = field(default_factory=list)

    def rebase(self, *, games: int, size: int) -> None:
        self.rows = [(offset + size, *rest) for offset, *rest in self.rows]

    def merge(self, later: Self, /) -> None:
        self.rows += later.rows


class _Indexer:
    """Turns every game into a row of the index."""

    keep: Keep | None = None
    """Every game is indexed."""

    def choose(self, games: Iterable[RawGame]) -> Generator[RawGame, None, _Rows]:
        """Yields all games, so there are no rows for games not chosen."""
        yield from games
        return _Rows()

    def handle(self, games: Sequence[RawGame]) -> _Rows:
        return _Rows(rows=[_row_of(raw.checked()) for raw in games])


def _row_of(raw: RawGame) -> Row:
    facts = read_facts(raw)
    id, defect = (0, raw.defect.value) if raw.defect else (int(raw.id, 16), "")
    return (raw.offset, id, defect, *(getattr(facts, name) for name in _FACTS))


class _Table:
    """Writes rows in row groups, and counts the games of each split in each group."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.games = 0
        self.train: list[int] = []
        self.heldout: list[int] = []
        self._writer = writer
        self._rows: list[Row] = []

    def add(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        while len(self._rows) >= ROWS:
            self._write(ROWS)

    def flush(self) -> None:
        if self._rows:
            self._write(len(self._rows))

    def _write(self, count: int) -> None:
        rows, self._rows = self._rows[:count], self._rows[count:]
        sound = [id for _, id, defect, *_ in rows if not defect]
        heldout = sum(id >= FIRST_HELDOUT for id in sound)
        self.train.append(len(sound) - heldout)
        self.heldout.append(heldout)
        self.games += count
        columns = zip(*rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), row_group_size=count)
