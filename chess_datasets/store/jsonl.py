"""Writes and reads files of JSON objects, one per line, compressed if the name ends in `.zst`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chess_datasets.store.files import BLOCK_BYTES, plain_text, read_chunks, split_lines, zstd
from chess_datasets.store.folders import Folder, OutputFile, WrittenFile
from rookery.errors import InvalidInput

_LEVEL = 6
_MAX_JSON_BYTES = 256 << 20


class JsonlWriter:
    """A file that is being written line by line."""

    def __init__(self, file: OutputFile, *, compress: bool) -> None:
        self._file = file
        self._compressor = zstd.ZstdCompressor(level=_LEVEL) if compress else None

    def add(self, value: Mapping[str, Any]) -> None:
        self.add_line(json.dumps(value, ensure_ascii=False).encode() + b"\n")

    def add_line(self, line: bytes) -> None:
        """Adds a line that is encoded already, with its line end."""
        self._file.write(self._compressor.compress(line) if self._compressor else line)

    def end(self) -> None:
        """Finishes the compressed stream."""
        if self._compressor:
            self._file.write(self._compressor.flush())

    @property
    def written(self) -> WrittenFile:
        """Name, size and hash of the file. Correct only after the `with` block that wrote it."""
        return self._file.written


@contextmanager
def jsonl_writer(folder: Folder, name: str) -> Iterator[JsonlWriter]:
    """Writes a new file, which exists once the `with` block ends. The same values give the same bytes."""
    with folder.write(name) as file:
        lines = JsonlWriter(file, compress=name.endswith(".zst"))
        yield lines
        lines.end()


def write_jsonl(folder: Folder, name: str, values: Iterable[Mapping[str, Any]]) -> WrittenFile:
    """Writes a whole file."""
    with jsonl_writer(folder, name) as lines:
        for value in values:
            lines.add(value)
    return lines.written


def read_jsonl(folder: Folder, name: str) -> Iterator[Any]:
    """The values of a file, compressed or not. Empty lines are skipped. Raises `InvalidInput` if a line is
    not JSON."""
    for number, line in enumerate(text_lines(folder, name), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"{folder.place(name)}:{number}: not JSON: {line[:80]!r}: {error}") from error


def text_lines(folder: Folder, name: str) -> Iterator[bytes]:
    """The lines of a text file, compressed or not, without line ends."""
    with text_blocks(folder, name) as blocks:
        yield from split_lines(blocks)


@contextmanager
def text_blocks(folder: Folder, name: str) -> Iterator[Iterator[bytes]]:
    """The text of a file, compressed or not, in blocks."""
    with folder.read(name) as file:
        yield plain_text(read_chunks(file, BLOCK_BYTES))


def read_json(folder: Folder, name: str) -> Any:
    """The value in a file, which is read as a whole. Raises `InvalidInput` if it is not JSON, or too
    large."""
    parts, size = [], 0
    with text_blocks(folder, name) as blocks:
        for block in blocks:
            parts.append(block)
            size += len(block)
            if size > _MAX_JSON_BYTES:
                place = folder.place(name)
                raise InvalidInput(f"{place!r} is JSON of more than {_MAX_JSON_BYTES >> 20} MiB")
    return parse_json(b"".join(parts), folder.place(name))


def parse_json(text: bytes, place: str) -> Any:
    """The value in a JSON text, which is at `place`. Raises `InvalidInput` if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{place!r} is not JSON: {error} in {text[:80]!r}") from error
