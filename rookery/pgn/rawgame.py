"""The bytes of one game as they are in a file, before its moves are read.

A `RawGame` is cheap to make, because most games are never parsed. This module also computes a game's id,
which depends only on the starting position and the moves, and decides whether the game is held out.
"""

import hashlib
import re
from enum import StrEnum
from typing import NamedTuple

from rookery.encoding import decode

MAX_GAME_BYTES = 1 << 20
"""Longer games are skipped: no annotated game has a megabyte."""

GLYPHS = str.maketrans(
    dict(zip("\u2654\u2655\u2656\u2657\u2658\u2659", "KQRBNP", strict=True))
    | dict(zip("\u265a\u265b\u265c\u265d\u265e\u265f", "KQRBNP", strict=True))
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")
    | {"\u00d7": "x", "\ufe0e": None, "\ufe0f": None}
)
"""Figurines, dashes and signs of capture as SAN has them."""

# The tag section: the first lines, which begin with a bracket, and the blank lines after them.
_TAG_SECTION = re.compile(rb"(?:\[[^\n]*(?:\n|\Z))*\s*")
# Everything except moves: comments, rest-of-line comments, tag pairs.
_NOT_MOVES = re.compile(rb"\{[^}]*(?:\}|\Z)|;[^\n]*|^\[[^\n]*$", re.MULTILINE)
_BRACES = b"{}"
_ALL_BUT_BRACES = bytes(set(range(256)) - set(_BRACES))
_START = re.compile(rb'\[(?<![^\n]\[)FEN\s+"([^"\r\n]*)"')
# "e.p." or "ep" after a capture, with or without a space. It is redundant.
_EN_PASSANT = re.compile(rb"(x[a-h][36][+#!?]*)\s*e\.?p\b\.?")
# A move without check and annotation marks.
_MOVE_WORD = re.compile(rb"[a-hKQRBNO][a-h1-8xKQRBNO=-]+")


class Defect(StrEnum):
    """The reason why a game is skipped."""

    DAMAGED_FILE = "damaged_file"
    TOO_LONG = "too_long"
    OPEN_COMMENT = "open_comment"
    OPEN_VARIATION = "open_variation"
    VARIANT = "variant"
    BAD_START = "bad_start"
    BAD_MOVE = "bad_move"
    NULL_MOVE = "null_move"
    NO_MOVES = "no_moves"


class RawGame(NamedTuple):
    """A game's bytes. `number` counts from 1 in its file; `offset` counts uncompressed bytes of the file."""

    number: int
    data: bytes
    offset: int = 0
    defect: Defect | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """The game as text. Lines end in LF; blank and escaped lines are left out."""
        lines = (line for line in self.data.splitlines() if line.strip() and not line.startswith(b"%"))
        return decode(b"".join(line + b"\n" for line in lines))

    @property
    def id(self) -> str:
        """16 hex digits that depend only on start and moves, so the same game in two files has the same id.

        >>> RawGame(1, b'[White "A"]\\n1. e4 {best} (1. d4) e5 2. Nf3+ *').id == RawGame(7, b"e4 e5 Nf3").id
        True
        """
        tags, moves = self.sections()
        hides = b";" in moves or b"\n[" in moves or moves.startswith(b"[")
        plain = None if hides else without_comments(moves)
        plain = _NOT_MOVES.sub(b"", moves) if plain is None else plain
        if not plain.isascii():
            plain = decode(plain).translate(GLYPHS).encode()
        if b"(" in plain:
            plain = _without_side_lines(plain)
        if b"0-0" in plain:
            plain = plain.replace(b"0-0-0", b"O-O-O").replace(b"0-0", b"O-O")
        return id_of(_START.findall(tags), plain)

    def sections(self) -> tuple[bytes, bytes]:
        section = _TAG_SECTION.match(self.data)
        end = section.end() if section else 0
        return self.data[:end], self.data[end:]

    def checked(self) -> "RawGame":
        """The game, marked with the defect `OPEN_COMMENT` if it ends inside a comment."""
        if self.defect or not _ends_in_comment(self.sections()[1]):
            return self
        return self._replace(defect=Defect.OPEN_COMMENT, detail="a comment is never closed")


def without_comments(moves: bytes) -> bytes | None:
    """The moves without comments in braces, or None if opening and closing braces do not alternate."""
    braces = moves.translate(None, _ALL_BUT_BRACES)
    if braces != _BRACES * (len(braces) // 2):
        return None
    return b"".join(moves.replace(b"}", b"{").split(b"{")[::2])


def _without_side_lines(moves: bytes) -> bytes:
    parts, depth = [], 0
    for part in re.split(rb"([()])", moves):
        if part == b"(":
            depth += 1
        elif part == b")":
            depth = max(0, depth - 1)
        elif not depth:
            parts.append(part)
    return b" ".join(parts)


def without_en_passant(moves: bytes) -> bytes:
    """The moves without the mark of an en passant capture.

    >>> without_en_passant(b"5. exf6ep gxf6 6. bxa6 e.p.")
    b'5. exf6 gxf6 6. bxa6'
    """
    return _EN_PASSANT.sub(rb"\1", moves) if b"p" in moves else moves


def id_of(start: list[bytes], moves: bytes) -> str:
    """The id of a game from the FEN it starts from, if given, and its moves without comments."""
    words = _MOVE_WORD.findall(without_en_passant(moves))
    return hashlib.sha256(b" ".join(start + words)).hexdigest()[:16]


def _ends_in_comment(moves: bytes) -> bool:
    if b";" in moves:
        # Removes comments that begin with `;`, but not a `;` within braces: whichever comes first counts.
        moves = re.sub(rb"(\{[^}]*(?:\}|\Z))|;[^\n]*", lambda match: match[1] or b"", moves)
    return moves.rfind(b"{") > moves.rfind(b"}")
