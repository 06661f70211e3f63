"""Writes and reads files of JSON objects, one per line, compressed if the name ends in `.zst`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import zstandard

from rookery.errors import InvalidInput
from services.data.store.files import BLOCK_BYTES, chunks_of, plain
from services.data.store.folders import Draft, Folder, Written

_LEVEL = 6


class Lines:
    """A file that is being written line by line."""

    def __init__(self, draft: Draft, *, compress: bool) -> None:
        self.lines = 0
        self._draft = draft
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj() if compress else None

    def add(self, value: Mapping[str, Any]) -> None:
        data = json.dumps(value, ensure_ascii=False).encode() + b"\n"
        self._draft.write(self._compressor.compress(data) if self._compressor else data)
        self.lines += 1

    def end(self) -> None:
        """Finishes the compressed stream."""
        if self._compressor:
            self._draft.write(self._compressor.flush())

    @property
    def written(self) -> Written:
        """Name, size and hash of the file. Valid once the block that wrote it has ended."""
        return self._draft.written


@contextmanager
def writing_lines(folder: Folder, name: str) -> Iterator[Lines]:
    """Opens a new file, which exists once the block ends. The same values give the same bytes."""
    with folder.write(name) as draft:
        lines = Lines(draft, compress=name.endswith(".zst"))
        yield lines
        lines.end()


def write_lines(folder: Folder, name: str, values: Iterable[Mapping[str, Any]]) -> Written:
    """Writes a whole file."""
    with writing_lines(folder, name) as lines:
        for value in values:
            lines.add(value)
    return lines.written


def read_lines(folder: Folder, name: str) -> Iterator[Any]:
    """The values of a file, compressed or not. Empty lines are skipped.

    Raises:
        InvalidInput: a line is not JSON.
    """
    for number, line in enumerate(lines_of(folder, name), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"{folder.place(name)}:{number}: no JSON: {line[:80]!r}: {error}") from error


def lines_of(folder: Folder, name: str) -> Iterator[bytes]:
    """The lines of a text file, without line ends."""
    tail = b""
    with folder.read(name) as file:
        for block in plain(chunks_of(file, BLOCK_BYTES)):
            *lines, tail = (tail + block).split(b"\n")
            yield from lines
    if tail:
        yield tail
