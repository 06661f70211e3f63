"""A PGN file on disk to lines of text, whatever it is compressed with and however it is encoded.

Never holds more than a block and a line: a file larger than memory is fine. A damaged file raises
one of `DAMAGE` at the damaged place, after every whole line before it.
"""

import bz2
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from rookery.errors import SetupError

DAMAGE = (zstandard.ZstdError, zlib.error, EOFError, OSError)
"""What a damaged file raises while it is read."""

MAX_LINE_CHARS = 1 << 20
"""A longer line comes in pieces."""

_BLOCK_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Source:
    """A PGN file by its content."""

    path: str
    size: int
    sha256: str


def identify(path: Path) -> Source:
    """Size and SHA-256 of a file.

    Raises:
        SetupError: it is not there or cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Source(str(path), path.stat().st_size, digest)
    except OSError as error:
        raise SetupError(f"cannot read {str(path)!r}: {error.strerror}") from error


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a `.pgn`, `.zst`, `.gz` or `.bz2` file, ended by LF, CRLF or CR.

    One character is one byte (Latin-1) until `decode` is asked: a file may change its encoding midway.
    """
    yield from _split_lines(_blocks(path))


def decode(text: str) -> str:
    """The text of some lines: UTF-8 if it is UTF-8, else the Latin-1 they were read as."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return text


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        if path.suffix == ".zst":
            yield from _zstd_blocks(file)
        elif path.suffix == ".gz":
            yield from _plain_blocks(gzip.GzipFile(fileobj=file))
        elif path.suffix == ".bz2":
            yield from _plain_blocks(bz2.BZ2File(file))
        else:
            yield from _plain_blocks(file)


def _plain_blocks(file: io.BufferedIOBase) -> Iterator[bytes]:
    # Not `read`, which gathers several reads and loses the good ones when the last one fails.
    while block := file.read1(_BLOCK_BYTES):
        yield block


def _zstd_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Not `stream_reader`, which takes a cut file for a complete one."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame, open_frame = decompressor.decompressobj(), False
    while block := file.read(_BLOCK_BYTES):
        while block:
            yield frame.decompress(block)
            block, open_frame = frame.unused_data, not frame.eof
            if frame.eof:
                frame = decompressor.decompressobj()
    if open_frame:
        raise EOFError("the zstd frame is cut off")


def _split_lines(blocks: Iterator[bytes]) -> Iterator[str]:
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    tail = ""
    for block in blocks:
        *lines, tail = (tail + newlines.decode(block.decode("latin-1"))).split("\n")
        yield from lines
        if len(tail) > MAX_LINE_CHARS:
            yield tail
            tail = ""
    if tail:
        yield tail
