"""`rookery data inspect`: describes files and folders, as text or JSON.

It says the format, size and first items of a file, and whether it agrees with its manifest. The format
is detected from the bytes, not from the name. No more is read than needed: the number of rows is in the last
bytes of a Parquet file, and lines are counted only on request.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from rookery.masking import mask_setting
from services.data.commands.flags import add_number, command_parser, natural
from services.data.pgn.reader import read_raw_games
from services.data.store.datasets import MANIFEST, ManifestCheck, check_manifest, read_manifest
from services.data.store.folders import Folder, open_file, open_folder
from services.data.store.formats import Format, format_of
from services.data.store.jsonl import read_json, read_jsonl, text_lines
from services.data.store.parquet import describe, read_rows
from services.data.traces.archive import TraceArchive

EXAMPLES = """  rookery data inspect runs/pairs/pairs.parquet
  rookery data inspect runs/archive
  rookery data inspect s3://bucket/positions --json
  rookery data inspect games.pgn.zst moves.jsonl --items 1 --count
"""


_COMPRESSED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"BZh": "bzip2"}


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


def _folder(folder: Folder, names: list[str]) -> Inspection:
    if any(name.startswith("run=") for name in names):
        return _archive(TraceArchive(folder))
    files = [name for name in names if name != MANIFEST]
    facts: dict[str, Any] = {"files": len(files), "first files": files[:5]}
    checks = check_manifest(folder)
    if MANIFEST in names and all(check.name != MANIFEST for check in checks):
        facts["manifest"] = read_manifest(folder)
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


def _file(folder: Folder, name: str, *, items: int, count: bool) -> Inspection:
    form = format_of(folder, name)
    with folder.read(name) as file:
        head = file.read(4)
        facts: dict[str, Any] = {"bytes": file.seek(0, os.SEEK_END)}
    packed = next((how for magic, how in _COMPRESSED.items() if head.startswith(magic)), None)
    if packed:
        facts["compressed"] = packed
    checks = check_manifest(folder) if name == MANIFEST else check_manifest(folder, only=name)
    place = folder.place(name)
    if form is not Format.PARQUET:
        first, more = _first(folder, name, form, items=items, count=count)
        return Inspection(place, form, facts | more, {}, first, checks)
    described = describe(folder, name)
    facts |= {"rows": described.rows, "row groups": described.row_groups, "written by": described.writer}
    if described.kind:
        facts["holds"] = f"{described.kind}, version {described.version}"
    first = list(islice(read_rows(folder, name), items))
    return Inspection(place, form, {**facts, **described.notes}, _schema(described.schema), first, checks)


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
        whole = read_json(folder, name)
        return (whole[:items], {"items": len(whole)}) if isinstance(whole, list) else ([whole], {})
    if form is Format.PGN:
        return [raw.text for raw in islice(read_raw_games(folder.place(name)), items)], {}
    return [line.decode(errors="replace") for line in islice(text_lines(folder, name), items)], {}


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status: 1 if a file differs from its manifest."""
    options = _parser().parse_args(argv)
    console = Console()
    sound = True
    for place in options.places:
        found = inspect(place, items=options.items, count=options.count)
        sound = sound and found.sound
        if options.json:
            sys.stdout.write(json.dumps(found.as_json(), default=str) + "\n")
        else:
            _show(found, console)
    return 0 if sound else 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "inspect",
        "Shows the format of a file (Parquet, JSON, JSON lines, PGN, compressed or not), its schema and its\n"
        "first items, and compares it with the manifest beside it by SHA-256. For a folder, shows the data\n"
        "set or archive in it. The exit status is 1 if a file differs from its manifest.",
        examples=EXAMPLES,
    )
    parser.add_argument("places", nargs="+", metavar="PLACE", help="file, folder or URL")
    add_number(parser, "--items", natural, 3, "number of first items to show")
    parser.add_argument("--count", action="store_true", help="count JSON lines, which reads the whole file")
    parser.add_argument("--json", action="store_true", help="one JSON object for each place")
    return parser


def _show(found: Inspection, console: Console) -> None:
    console.print(
        f"[bold]{mask_setting(found.place)}[/]: {found.format.value}", highlight=False, soft_wrap=True
    )
    for name, value in found.facts.items():
        _fact(name, value, console)
    if found.schema:
        table = Table("column", "type", box=None, padding=(0, 2), header_style="bold")
        for column, kind in found.schema.items():
            table.add_row(column, kind)
        console.print(table)
    for check in found.checks:
        mark = "[green]holds[/]" if check.holds else "[red]DIFFERS[/]"
        console.print(f"  manifest: {check.name} {mark} ({check.detail})", highlight=False, soft_wrap=True)
    for item in found.first:
        _item(item, found.format, console)
    console.print()


def _fact(name: str, value: Any, console: Console) -> None:
    if isinstance(value, dict):
        console.print(f"  {name}:", highlight=False)
        console.print_json(json.dumps(value, default=str))
        return
    shown = f"{value:,}" if isinstance(value, int) else value
    console.print(f"  {name}: {shown}", highlight=False, markup=False, soft_wrap=True)


def _item(item: Any, form: Format, console: Console) -> None:
    if form in (Format.PGN, Format.TEXT):
        console.print(item, markup=False, highlight=False, soft_wrap=True)
        return
    text = json.dumps(item, indent=2, default=str, ensure_ascii=False)
    if console.is_terminal:
        console.print(Syntax(text, "json", background_color="default", word_wrap=True))
    else:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
