"""Reads the plain text of files, local or remote, compressed or not.

The compression is detected from the first bytes, not from the name, so standard input may be compressed too.
A few blocks are in memory, so a file may be larger than memory. Bytes that cannot be decompressed raise
`DamagedFile`, after what comes a block or two before them was returned. Disk and network failures raise
other errors.
"""

import bz2
import codecs
import hashlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Protocol

from chess_datasets.store.folders import open_file
from rookery.encoding import UTF16_MARKS
from rookery.errors import InvalidInput, SetupError

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

STANDARD_INPUT = "-"

BLOCK_BYTES = 1 << 18
"""Approximate size of a block of plain text; a larger one would not stay in the CPU cache until scanned."""

MAX_LINE_BYTES = 64 << 20
"""A longer line of a text file is refused."""

_BUFFER_BYTES = 1 << 18
_WINDOW_LOG_MAX = 31  # of `zstd --long=31`


class DamagedFile(InvalidInput):
    """The bytes read cannot be decompressed; the message says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, identified by its content."""

    path: str
    size: int
    sha256: str


@contextmanager
def open_bytes(location: str | Path) -> Iterator[IO[bytes]]:
    """Opens a path, a URL such as `s3://bucket/games.pgn.zst`, or `-` for standard input. Raises `SetupError`
    if the file does not exist or cannot be read."""
    if str(location) == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    if "://" in str(location):
        folder, name = open_file(location)
        with folder.read(name) as file:
            yield file
        return
    try:
        stored = Path(location).open("rb", buffering=_BUFFER_BYTES)  # noqa: SIM115 - closed below
    except OSError as error:
        raise SetupError(f"cannot read {str(location)!r}: {error.strerror}") from error
    with stored:
        yield stored


class Fingerprint:
    """Computes the `Source` of a file from its bytes as they are read."""

    def __init__(self, location: str | Path) -> None:
        self._path = str(location)
        self._size = 0
        self._digest = hashlib.sha256()

    def update(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._size += len(chunk)

    @property
    def source(self) -> Source:
        """The file's size and hash. Correct only once all of its bytes have been added."""
        return Source(self._path, self._size, self._digest.hexdigest())


def identify(location: str | Path) -> Source:
    """Size and SHA-256 of a file. Raises `SetupError` if the file does not exist or cannot be read."""
    fingerprint = Fingerprint(location)
    with open_bytes(location) as file:
        for chunk in read_chunks(file, 1 << 20):
            fingerprint.update(chunk)
    return fingerprint.source


def plain_text(chunks: Iterable[bytes], *, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The plain text of a file, compressed or not, from its chunks, in blocks of about `block_bytes`. Raises
    `DamagedFile` if the bytes after those already yielded cannot be decompressed; one or two blocks of text
    that came before them are lost."""
    rest = iter(chunks)
    first = next(rest, b"")
    while len(first) < 4 and (more := next(rest, b"")):
        first += more
    new = _codec_of(first)
    chunks = chain([first] if first else [], rest)
    if new:
        chunks = _decompress(chunks, new, block_bytes)
    yield from _utf8(join_blocks(chunks, block_bytes))


def read_chunks(file: IO[bytes], size: int, *, limit: int | None = None) -> Iterator[bytes]:
    """The bytes from the current offset on, in chunks of `size`; at most `limit` bytes in all."""
    while limit is None or limit > 0:
        chunk = file.read(size if limit is None else min(size, limit))
        if not chunk:
            return
        if limit is not None:
            limit -= len(chunk)
        yield chunk


class _Codec(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def _zstd() -> _Codec:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})


def _gzip() -> _Codec:
    return zlib.decompressobj(wbits=31)


def _inflate(codec: Any, data: bytes, most: int) -> Iterator[bytes]:
    """The text of some compressed bytes, in blocks of at most `most` bytes."""
    yield (text := codec.decompress(data, most))
    if hasattr(codec, "needs_input"):
        while not (codec.needs_input or codec.eof):
            yield codec.decompress(b"", most)
    else:  # gzip, whose `unconsumed_tail` may be what follows the end
        while not codec.eof and (codec.unconsumed_tail or len(text) == most):
            yield (text := codec.decompress(codec.unconsumed_tail, most))


_CODECS: dict[bytes, Callable[[], _Codec]] = {
    b"\x28\xb5\x2f\xfd": _zstd,
    b"\x1f\x8b": _gzip,
    b"BZh": bz2.BZ2Decompressor,
}


def split_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a text, without line ends. Raises `InvalidInput` if one is longer than
    `MAX_LINE_BYTES`."""
    tail: list[bytes] = []
    size = 0
    for block in blocks:
        *lines, last = block.split(b"\n")
        if lines:
            lines[0] = b"".join((*tail, lines[0]))
            tail, size = [], 0
            yield from lines
        tail.append(last)
        size += len(last)
        if size > MAX_LINE_BYTES:
            raise InvalidInput(f"a line of more than {MAX_LINE_BYTES >> 20} MiB: {tail[0][:80]!r}...")
    if size:
        yield b"".join(tail)


def is_compressed(start: bytes) -> bool:
    """Whether a file with these first bytes is in a supported compression format."""
    return _codec_of(start) is not None


def _codec_of(start: bytes) -> Callable[[], _Codec] | None:
    # `pzstd` begins with a skippable frame: 0x184D2A5? in little-endian order.
    if start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5:
        return _zstd
    return next((new for magic, new in _CODECS.items() if start.startswith(magic)), None)


def _decompress(chunks: Iterable[bytes], new: Callable[[], _Codec], most: int) -> Iterator[bytes]:
    """Decompresses frame by frame. A library's file object may take a truncated file for a complete one."""
    codec, open_frame = new(), False
    for chunk in chunks:
        while chunk:
            if new is _gzip and not open_frame:
                chunk = chunk.lstrip(b"\0")  # padding between members, as gzip itself allows
                if not chunk:
                    break
            try:
                yield from _inflate(codec, chunk, most)
            except (zstd.ZstdError, zlib.error, OSError, EOFError) as error:
                raise DamagedFile(f"{type(error).__name__}: {error}") from error
            chunk, open_frame = codec.unused_data, not codec.eof
            if codec.eof:
                codec = new()
    if open_frame:
        raise DamagedFile("EOFError: the compressed file is cut off")


def _utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Converts UTF-16 to UTF-8, if there is a byte order mark. Everything else is unchanged."""
    decoder = None
    for number, block in enumerate(blocks):
        if number == 0 and block.startswith(UTF16_MARKS):
            decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        yield decoder.decode(block).encode(errors="replace") if decoder else block


def join_blocks(blocks: Iterable[bytes], least: int) -> Iterator[bytes]:
    """Joins small blocks to larger ones. Everything before a damage is yielded before `DamagedFile`."""
    buffered: list[bytes] = []
    size = 0
    try:
        for block in blocks:
            buffered.append(block)
            size += len(block)
            if size >= least:
                yield b"".join(buffered)
                buffered, size = [], 0
    except DamagedFile:
        yield b"".join(buffered)
        raise
    if size:
        yield b"".join(buffered)
