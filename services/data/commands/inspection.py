"""Describes a file or folder: format, size, first items, and whether it agrees with its manifest.

The format is detected from the bytes, not from the name. No more is read than needed: the number of rows is
in the last bytes of a Parquet file, and lines are counted only on request.
"""

import codecs
import json
import os
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

import pyarrow as pa

from rookery.errors import InvalidInput, SetupError
from services.data.pgn.reader import read_raw_games
from services.data.store.datasets import MANIFEST
from services.data.store.files import BLOCK_BYTES, plain_text, read_chunks
from services.data.store.folders import Folder, open_file, open_folder
from services.data.store.jsonl import read_jsonl, text_lines
from services.data.store.parquet import describe, first_rows
from services.data.traces.archive import TraceArchive

# A tag or a first move, after any blank lines, comments, escaped lines and bracketed words that are no tag.
_PGN = re.compile(rb'(?:\s|\xef\xbb\xbf|\{[^}]*\}|[;%][^\n]*+|\[[^\]"\n]*\])*+(?:\[[A-Za-z]\w*\s+"|1\s*\.)')
_JSON = re.compile(rb'[\[{]\s*(?:["\[\]{}0-9-]|true|false|null|\Z)')
_MAX_JSON_BYTES = 256 << 20
_COMPRESSED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"BZh": "bzip2"}


class Format(StrEnum):
    """The format of a file or folder."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    JSON = "json"
    PGN = "pgn"
    TEXT = "text"
    ARCHIVE = "archive of traces"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class ManifestCheck:
    """The result of comparing a file with its manifest."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of an inspection."""

    place: str
    format: Format
    facts: dict[str, Any] = field(default_factory=dict)
    schema: dict[str, str] = field(default_factory=dict)
    first: list[Any] = field(default_factory=list)
    checks: list[ManifestCheck] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return all(check.holds for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {**asdict(self), "format": self.format.value}


def inspect(place: str, *, items: int = 3, count: bool = False) -> Inspection:
    """Inspects a file, or the folder of a data set or archive. `count` also counts the lines of text files.

    Raises:
        SetupError: there is no such file or folder, or it cannot be read.
        InvalidInput: the file is damaged.
    """
    folder = open_folder(place)
    names = folder.names()
    if names:
        return _folder(folder, names)
    parent, name = open_file(place)
    return _file(parent, name, items=items, count=count)


def check_manifest(folder: Folder, *, only: str | None = None) -> list[ManifestCheck]:
    """Compares the files in a folder's manifest, or only the file `only`, with their SHA-256."""
    try:
        manifest = _manifest(folder)
    except InvalidInput as error:
        return [ManifestCheck(MANIFEST, False, str(error))]
    outputs = manifest.get("outputs") if isinstance(manifest, dict) else None
    named = [one for one in outputs or [] if isinstance(one, dict) and {"path", "sha256"} <= one.keys()]
    return [_check(folder, output) for output in named if only in (None, output["path"])]


def _manifest(folder: Folder) -> Any:
    """The folder's manifest, or None if there is none."""
    try:
        text = folder.read_bytes(MANIFEST)
    except SetupError:
        return None
    return _loads(text, folder.place(MANIFEST))


def _check(folder: Folder, output: dict[str, Any]) -> ManifestCheck:
    try:
        found = folder.sha256(output["path"])
    except SetupError as error:
        return ManifestCheck(output["path"], False, str(error))
    if found == output["sha256"]:
        return ManifestCheck(output["path"], True, f"SHA-256 {found}")
    return ManifestCheck(output["path"], False, f"SHA-256 is {found}, the manifest says {output['sha256']}")


def _folder(folder: Folder, names: list[str]) -> Inspection:
    if any(name.startswith("run=") for name in names):
        return _archive(TraceArchive(folder))
    files = [name for name in names if name != MANIFEST]
    facts: dict[str, Any] = {"files": len(files), "first files": files[:5]}
    checks = check_manifest(folder)
    if MANIFEST in names and all(check.name != MANIFEST for check in checks):
        facts["manifest"] = _manifest(folder)
    return Inspection(folder.url, Format.FOLDER, facts, checks=checks)


def _archive(archive: TraceArchive) -> Inspection:
    facts: dict[str, Any] = {}
    schema: dict[str, str] = {}
    for run in archive.runs():
        files = archive.files(run=run)
        described = [describe(archive.folder, file.name) for file in files]
        days = sorted({file.name.split("date=")[1][:10] for file in files})
        facts[f"run {run}"] = (
            f"{sum(one.rows for one in described)} groups in {len(files)} files, {days[0]} to {days[-1]}"
        )
        schema = _schema(described[-1].schema)
    return Inspection(archive.folder.url, Format.ARCHIVE, facts, schema)


def format_of(folder: Folder, name: str) -> Format:
    """The format of a file, from its first bytes.

    Raises:
        SetupError: the file does not exist or cannot be read.
    """
    with folder.read(name) as file:
        if file.read(4) == b"PAR1":
            return Format.PARQUET
    with closing(_blocks(folder, name)) as blocks:
        start = next(blocks, b"").removeprefix(codecs.BOM_UTF8).lstrip()
    if _PGN.match(start):
        return Format.PGN
    if not _JSON.match(start):
        return Format.TEXT
    return Format.JSONL if start.startswith(b"{") and _parses(start.partition(b"\n")[0]) else Format.JSON


def _file(folder: Folder, name: str, *, items: int, count: bool) -> Inspection:
    form = format_of(folder, name)
    with folder.read(name) as file:
        head = file.read(4)
        facts: dict[str, Any] = {"bytes": file.seek(0, os.SEEK_END)}
    packed = next((how for magic, how in _COMPRESSED.items() if head.startswith(magic)), None)
    if packed:
        facts["compressed"] = packed
    checks = check_manifest(folder) if name == MANIFEST else check_manifest(folder, only=name)
    if form is Format.PARQUET:
        return _parquet(folder, name, facts, checks, items=items)
    first, more = _first(folder, name, form, items=items, count=count)
    return Inspection(folder.place(name), form, facts | more, {}, first, checks)


def _parquet(
    folder: Folder, name: str, facts: dict[str, Any], checks: list[ManifestCheck], *, items: int
) -> Inspection:
    described = describe(folder, name)
    facts |= {"rows": described.rows, "row groups": described.row_groups, "written by": described.writer}
    if described.kind:
        facts["holds"] = f"{described.kind}, version {described.version}"
    facts |= described.notes
    return Inspection(
        folder.place(name),
        Format.PARQUET,
        facts,
        _schema(described.schema),
        first_rows(folder, name, items),
        checks,
    )


def _schema(schema: pa.Schema) -> dict[str, str]:
    """The type of every leaf column by its path, such as `traces[].verdict.reward`."""
    return dict(leaf for column in schema for leaf in _leaves(column.name, column.type))


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        for part in kind:
            yield from _leaves(f"{path}.{part.name}", part.type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{path}[]", kind.value_type)
    else:
        yield path, str(kind).replace(f" ('{path.rpartition('.')[2]}')", "")


def _first(
    folder: Folder, name: str, form: Format, *, items: int, count: bool
) -> tuple[list[Any], dict[str, Any]]:
    """The first items of a text file, and how many there are, if known."""
    if form is Format.JSONL:
        values = read_jsonl(folder, name)
        first = list(islice(values, items))
        return first, {"lines": len(first) + sum(1 for _ in values)} if count else {}
    if form is Format.JSON:
        whole = _loads(_whole(folder, name), folder.place(name))
        return (whole[:items], {"items": len(whole)}) if isinstance(whole, list) else ([whole], {})
    if form is Format.PGN:
        return [raw.text for raw in islice(read_raw_games(folder.place(name)), items)], {}
    return [line.decode(errors="replace") for line in islice(text_lines(folder, name), items)], {}


def _whole(folder: Folder, name: str) -> bytes:
    held, size = [], 0
    for block in _blocks(folder, name):
        held.append(block)
        size += len(block)
        if size > _MAX_JSON_BYTES:
            raise InvalidInput(f"{folder.place(name)!r} is JSON of more than {_MAX_JSON_BYTES >> 20} MiB")
    return b"".join(held)


def _parses(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _loads(text: bytes, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{place!r} is no JSON: {error} in {text[:80]!r}") from error


def _blocks(folder: Folder, name: str) -> Generator[bytes]:
    with folder.read(name) as file:
        yield from plain_text(read_chunks(file, BLOCK_BYTES))
