"""Bytes on disk to the text of one game at a time, whatever the file has suffered.

Cuts games apart before anything parses them, so that a game with an unclosed comment or a cut tail
cannot swallow its neighbours. Knows nothing of chess rules: `services.data.games` reads the text.

Never holds more than one game: a file larger than memory is fine. What cannot be read becomes a
`RawGame` with a defect, in its place among the others.
"""

import bz2
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO

import zstandard

from rookery.errors import SetupError

MAX_GAME_CHARS = 1 << 20
"""A longer game is passed over. The longest one of 269 moves, annotated, stays far below."""

_BLOCK_BYTES = 1 << 14
_DAMAGE = (zstandard.ZstdError, zlib.error, EOFError, OSError)

# A tag pair at the start of a line; `[%clk` of a broken comment is none.
_TAG = re.compile(r'\[([A-Za-z0-9][A-Za-z0-9_+#=:-]*)\s+"')
# What opens or closes a comment.
_COMMENT_MARK = re.compile(r"[;{}]")
# Movetext that can only be the beginning of a game: White's first move.
_FIRST_MOVE = re.compile(r"\s*1\s*\.(?!\.)")
_RESULTS = ("1-0", "0-1", "1/2-1/2", "*")

# Everything but moves: comments, rest-of-line comments, tag pairs other than FEN.
_NOT_MOVES = re.compile(r"\{[^}]*\}|;[^\n]*|^\[(?!FEN)[^\n]*$", re.MULTILINE)
# A move without its check and annotation marks.
_MOVE_WORD = re.compile(r"[a-hKQRBNO][a-h1-8xKQRBNO=-]+")


class Defect(StrEnum):
    """Why a game is passed over."""

    DAMAGED_FILE = "damaged_file"
    TOO_LONG = "too_long"
    OPEN_COMMENT = "open_comment"
    VARIANT = "variant"
    BAD_START = "bad_start"
    BAD_MOVE = "bad_move"
    NULL_MOVE = "null_move"
    NO_MOVES = "no_moves"


@dataclass(frozen=True, slots=True)
class RawGame:
    """The text of one game: `number` counts from 1 within its file, blank lines are gone."""

    number: int
    text: str
    defect: Defect | None = None
    detail: str = ""

    @property
    def id(self) -> str:
        """16 hex digits that depend on the moves alone: the same game in two files has one id.

        >>> RawGame(1, '[White "A"]\\n1. e4 {best by test} e5 2. Nf3+ *').id == RawGame(7, "e4 e5 Nf3").id
        True
        """
        words = _MOVE_WORD.findall(_NOT_MOVES.sub("", self.text))
        return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


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


def read_raw_games(path: Path) -> Iterator[RawGame]:
    """The games of a `.pgn`, `.pgn.zst`, `.pgn.gz` or `.pgn.bz2` file, in order.

    A damaged file gives what could be read, then one `RawGame` with the defect `DAMAGED_FILE`.
    """
    splitter = _Splitter()
    try:
        for line in _lines(_blocks(path)):
            game = splitter.feed(line)
            if game:
                yield game
    except _DAMAGE as error:
        yield splitter.abandon(f"{type(error).__name__}: {error}; what came before it is kept")
        return
    last = splitter.finish()
    if last:
        yield last


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


def _plain_blocks(file: IO[bytes] | gzip.GzipFile | bz2.BZ2File) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
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


def _lines(blocks: Iterator[bytes]) -> Iterator[str]:
    """Lines ended by LF, CRLF or CR, one character a byte (Latin-1), whatever the encoding."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    tail = ""
    for block in blocks:
        *lines, tail = (tail + newlines.decode(block.decode("latin-1"))).split("\n")
        yield from lines
        if len(tail) > MAX_GAME_CHARS:
            yield tail
            tail = ""
    if tail:
        yield tail


class _Splitter:
    """Decides line by line where one game ends and the next begins."""

    def __init__(self) -> None:
        self._number = 0
        self._reset()

    def _reset(self) -> None:
        self._lines: list[str] = []
        self._chars = 0
        self._tags: set[str] = set()
        self._has_moves = self._in_comment = self._ended = self._blank = False

    def feed(self, line: str) -> RawGame | None:
        """Takes one line; the game before it, if the line begins another."""
        if self._number == 0 and not self._lines:
            line = line.removeprefix("\xef\xbb\xbf")  # the byte order mark of UTF-8, as Latin-1
        if not line or line.isspace():
            self._blank = True
            return None
        if line.startswith("%"):
            return None
        tag = _TAG.match(line)
        game = self.finish() if self._begins_game(line, tag) else None
        self._add(line, tag)
        return game

    def finish(self) -> RawGame | None:
        """The game gathered so far."""
        if not self._lines:
            return None
        self._number += 1
        game = RawGame(self._number, _decode("\n".join(self._lines) + "\n"))
        if self._chars > MAX_GAME_CHARS:
            game = replace(game, defect=Defect.TOO_LONG, detail=f"{self._chars} characters")
        elif self._in_comment:
            game = replace(game, defect=Defect.OPEN_COMMENT, detail="a comment is never closed")
        self._reset()
        return game

    def abandon(self, detail: str) -> RawGame:
        """The game gathered so far, which nobody can trust to be whole."""
        game = self.finish() or RawGame(self._number + 1, "")
        return replace(game, defect=Defect.DAMAGED_FILE, detail=detail)

    def _begins_game(self, line: str, tag: re.Match[str] | None) -> bool:
        if tag:
            if self._in_comment:
                return self._blank
            return self._has_moves or tag[1] in self._tags
        after_gap = self._has_moves and self._blank and not self._in_comment
        return after_gap and (self._ended or _FIRST_MOVE.match(line) is not None)

    def _add(self, line: str, tag: re.Match[str] | None) -> None:
        self._blank = False
        self._chars += len(line)
        if self._chars <= MAX_GAME_CHARS:
            self._lines.append(line)
        if not self._has_moves and not self._in_comment and line.startswith("["):
            self._tags.update([tag[1]] if tag else [])
            return
        self._has_moves = True
        self._follow_comments(line)
        self._ended = not self._in_comment and line.rstrip().endswith(_RESULTS)

    def _follow_comments(self, line: str) -> None:
        for mark in _COMMENT_MARK.findall(line):
            if mark == "}":
                self._in_comment = False
            elif self._in_comment:
                continue
            elif mark == ";":
                return
            else:
                self._in_comment = True


def _decode(text: str) -> str:
    """UTF-8 if it is UTF-8, else the Latin-1 it was read as."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return text
