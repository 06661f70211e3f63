"""Writes and reads Parquet files of records, a row group at a time.

The metadata of a file names the kind of record and the version of its schema. A file of another kind or
version is refused. Each record type declares its own `Kind`.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

import rookery
from chess_datasets.store.columns import adapter, schema_of
from chess_datasets.store.folders import Folder, OutputFile, WrittenFile
from rookery.errors import InvalidInput, validation_message

R = TypeVar("R")

SUFFIX = ".parquet"

_KIND, _VERSION, _WRITER, _NOTES = b"rookery.kind", b"rookery.schema", b"rookery.writer", b"rookery.notes"


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """A kind of record. Increase `version` when a field is removed or its meaning changes."""

    name: str
    record: type[R]
    version: int = 1
    rows: int = 8192
    """Rows per row group. Writers and readers hold one row group in memory."""
    older: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    """The earlier versions that are read, each with what makes a row of this version from one of its rows."""


@dataclass(frozen=True, slots=True)
class ParquetDescription:
    """What the metadata of a Parquet file says. `notes` are those of the writer."""

    kind: str
    version: str
    notes: Mapping[str, str]
    rows: int


class RecordWriter(Generic[R]):
    """Writes records to a Parquet file. Holds one row group in memory."""

    def __init__(self, writer: pq.ParquetWriter, kind: Kind[R], schema: pa.Schema, file: OutputFile) -> None:
        self.rows = 0
        self._file = file
        self._writer = writer
        self._kind = kind
        self._rows = adapter(kind.record)
        self._schema = schema
        self._buffered: list[dict[str, Any]] = []

    def add(self, record: R) -> None:
        self._buffered.append(self._rows.dump_python(record))
        self.rows += 1
        if len(self._buffered) == self._kind.rows:
            self.flush()

    @property
    def written(self) -> WrittenFile:
        """Name, size and hash of the file. Correct only after the `with` block that wrote it."""
        return self._file.written

    def flush(self) -> None:
        if self._buffered:
            batch = pa.RecordBatch.from_pylist(self._buffered, schema=self._schema)
            self._writer.write_batch(batch, row_group_size=self._kind.rows)
            self._buffered = []


@contextmanager
def record_writer(
    folder: Folder, name: str, kind: Kind[R], *, notes: Mapping[str, str] | None = None
) -> Iterator[RecordWriter[R]]:
    """Writes a new file, which exists once the `with` block ends. `notes` are stored in its metadata."""
    schema = schema_of(kind.record).with_metadata(
        {
            _KIND: kind.name,
            _VERSION: str(kind.version),
            _WRITER: f"rookery {rookery.__version__}",
            _NOTES: json.dumps(dict(notes or {}), sort_keys=True),
        }
    )
    # Those of nested columns help no reader, and are a large part of a small file.
    statistics = [field.name for field in schema if not pa.types.is_nested(field.type)]
    with (
        folder.write(name) as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_statistics=statistics) as writer,
    ):
        records = RecordWriter(writer, kind, schema, file)
        yield records
        records.flush()


def write_records(
    folder: Folder, name: str, kind: Kind[R], records: Iterable[R], *, notes: Mapping[str, str] | None = None
) -> WrittenFile:
    """Writes a file. The same records and notes give the same bytes."""
    with record_writer(folder, name, kind, notes=notes) as table:
        for record in records:
            table.add(record)
    return table.written


def read_records(folder: Folder, name: str, kind: Kind[R]) -> Iterator[R]:
    """The records of a file, in order. Raises `InvalidInput` if the file is not Parquet, has another kind of
    record, or a row is not one."""
    records = adapter(kind.record)
    for number, row in enumerate(read_values(folder, name, kind), start=1):
        try:
            record = records.validate_python(row)
        except ValidationError as error:
            why = validation_message(error.errors(include_url=False)[:1], root="row")
            raise InvalidInput(f"{folder.place(name)!r}, row {number}: {why}") from error
        yield record


def read_values(folder: Folder, name: str, kind: Kind[R]) -> Iterator[dict[str, Any]]:
    """The rows of a file of one kind, which may have missing or wrong values. Raises `InvalidInput` if the
    file is not Parquet, or has another kind of record."""
    with folder.read(name) as raw:
        file = open_parquet(raw, folder.place(name))
        description = _describe(file)
        known = {str(kind.version): lambda row: row, **kind.older}
        if description.kind != kind.name or description.version not in known:
            raise InvalidInput(
                f"{folder.place(name)!r} holds {description.kind!r} in version {description.version!r}: "
                f"{kind.name!r} in version {str(kind.version)!r} is read here"
            )
        columns = [name for name in schema_of(kind.record).names if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=min(kind.rows, _ROWS), columns=columns):
            yield from map(known[description.version], batch.to_pylist(maps_as_pydicts="strict"))


_ROWS = 256
"""Rows in memory at a time: a dictionary makes many long values of a few bytes."""


def read_rows(folder: Folder, name: str, columns: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of any Parquet file, with those of `columns` that it has; by default, with all."""
    with folder.read(name) as raw:
        file = open_parquet(raw, folder.place(name))
        names = [name for name in file.schema_arrow.names if columns is None or name in columns]
        for batch in file.iter_batches(batch_size=_ROWS, columns=names):
            yield from batch.to_pylist()


def is_parquet(folder: Folder, name: str) -> bool:
    """Whether a file is Parquet, or claims to be by its name."""
    with folder.read(name) as raw:
        return name.endswith(SUFFIX) or raw.read(4) == b"PAR1"


def describe(folder: Folder, name: str) -> ParquetDescription:
    """Reads the metadata of a file. Raises `InvalidInput` if the file is not Parquet."""
    with folder.read(name) as raw:
        return _describe(open_parquet(raw, folder.place(name)))


def open_parquet(raw: IO[bytes], place: str) -> pq.ParquetFile:
    """The Parquet file at `place`. Raises `InvalidInput` if it is not Parquet, or damaged."""
    try:
        return pq.ParquetFile(raw)
    except (pa.ArrowInvalid, OSError) as error:  # OSError: metadata that do not decode
        raise InvalidInput(f"{place!r} is not a Parquet file: {error}") from error


def _describe(file: pq.ParquetFile) -> ParquetDescription:
    metadata = file.schema_arrow.metadata or {}
    return ParquetDescription(
        kind=metadata.get(_KIND, b"").decode(),
        version=metadata.get(_VERSION, b"").decode(),
        notes=json.loads(metadata.get(_NOTES, b"{}")),
        rows=file.metadata.num_rows,
    )
