"""Splits a large file into pieces that different processes can read independently.

Plain text can be cut anywhere. In a compressed file, reading can start where a frame begins. `pzstd`, which
Lichess uses for its dumps, writes the length of each frame before it, so a 30 GB file is planned with a few
thousand small reads. Any other compressed file is one piece. So is every compressed file behind a URL, where
small reads are slow, and a JSON list of games, each a string of PGN.
"""

import json
import logging
import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from chess_datasets.store.files import (
    BLOCK_BYTES,
    STANDARD_INPUT,
    DamagedFile,
    is_compressed,
    join_blocks,
    open_bytes,
    plain_text,
    read_chunks,
)

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 26
"""Size of a piece of plain text."""

READ_BYTES = 1 << 18
"""Stored bytes read at once."""

Watch = Callable[[bytes], None]

# How a JSON list of strings begins. A tag pair of PGN never has a quote after its bracket.
_LIST = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*"')
_LIST_BYTES = 64

# A skippable frame whose four bytes of content are the size of the next frame. Source: facebook/zstd,
# contrib/pzstd/SkippableFrame.h.
_ANNOUNCEMENT = struct.Struct("<III")
_MAGIC = 0x184D2A50


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `stop` of a stored file; if `stop` is None, up to the end of the file."""

    location: str
    start: int = 0
    stop: int | None = None
    is_text: bool = False

    def blocks(self, watch: Watch | None = None, *, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
        """The plain text of the piece, in blocks of about `block_bytes`. `watch` is called with the stored
        bytes, damaged or not. Raises `SetupError` if the file cannot be read; `DamagedFile` if the bytes
        after those already yielded cannot be decompressed."""
        limit = None if self.stop is None else self.stop - self.start
        with open_bytes(self.location) as file:
            if self.start:
                file.seek(self.start)
            chunks = read_chunks(file, READ_BYTES, limit=limit)
            if watch:
                chunks = _watched(chunks, watch)
            if self.is_text:
                yield from join_blocks(chunks, block_bytes)
                return
            try:
                unclosed = iter(lambda: next(chunks, b""), b"")  # `plain_text` must not close `chunks`
                text = plain_text(unclosed, block_bytes=block_bytes)
                yield from text if self.start else _unpack_json_list(text)
            except DamagedFile as damage:
                logger.warning("reading of %r stops early: %s", self.location, damage)
                if watch:
                    deque(chunks, maxlen=0)
                raise


def pieces_of(location: str | Path) -> list[Piece]:
    """The pieces of a file, in order. Raises `SetupError` if the file does not exist or cannot be read."""
    name = str(location)
    if name == STANDARD_INPUT:
        return [Piece(name)]
    with open_bytes(name) as file:
        size = file.seek(0, 2)
        file.seek(0)
        start = file.read(_LIST_BYTES)
        if _LIST.match(start):
            cuts, is_text = [0], False
        elif is_compressed(start) or start[:2] in (b"\xff\xfe", b"\xfe\xff"):
            cuts, is_text = [0] if "://" in name else _frames(file, size), False
        else:
            cuts, is_text = list(range(0, max(size, 1), PIECE_BYTES)), True
    stops: list[int | None] = [*cuts[1:], None]
    return [Piece(name, start, stop, is_text) for start, stop in zip(cuts, stops, strict=True)]


def _unpack_json_list(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The games of a JSON list of PGN strings, which is read as a whole. Any other text is unchanged. Raises
    `DamagedFile` if it begins like a list of strings and is none."""
    first = next(blocks, b"")
    if not _LIST.match(first):
        yield first
        yield from blocks
        return
    try:
        games = [with_tags(game.strip()) for game in json.loads(first + b"".join(blocks))]
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedFile(f"not a JSON list of strings: {error}") from error
    yield from (f"{game}\n\n".encode(errors="replace") for game in games)


def with_tags(game: str) -> str:
    """The text of a game with at least one tag pair, so that it begins for certain, whatever comes before it.

    >>> with_tags("1. e4 *")
    '[Event "?"]\\n\\n1. e4 *'
    """
    return game if game.startswith("[") else f'[Event "?"]\n\n{game}'


def _watched(chunks: Iterator[bytes], watch: Watch) -> Iterator[bytes]:
    for chunk in chunks:
        watch(chunk)
        yield chunk


def _frames(file: IO[bytes], size: int) -> list[int]:
    """The offsets of the frames whose length is announced. The last piece contains everything after them."""
    starts = [0]
    at = 0
    while at < size:
        file.seek(at)
        words = file.read(_ANNOUNCEMENT.size)
        if len(words) < _ANNOUNCEMENT.size:
            break
        magic, length, frame_bytes = _ANNOUNCEMENT.unpack(words)
        if (magic, length) != (_MAGIC, 4):
            break
        if at:
            starts.append(at)
        at += _ANNOUNCEMENT.size + frame_bytes
    return starts
