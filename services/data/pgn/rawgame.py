"""The bytes of one game as they stand in a file, before anything has read its moves.

Cheap to make, because millions are passed over for each that is read. What depends on the start and
the moves alone is here too: the id of a game, which decides what is held out.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

MAX_GAME_BYTES = 1 << 20
"""A longer game is passed over: no annotator writes a megabyte about one."""

TICKET_BYTES = 256
"""So much of a game decides which samples it is in: the tags that tell it from others."""

# The tag section: leading lines that begin with a bracket, and the blank lines after them.
_TAG_SECTION = re.compile(rb"(?:\[[^\n]*(?:\n|\Z))*\s*")
# Everything but moves: comments, rest-of-line comments, tag pairs.
_NOT_MOVES = re.compile(rb"\{[^}]*\}|;[^\n]*|^\[[^\n]*$", re.MULTILINE)
_BRACES = b"{}"
_ALL_BUT_BRACES = bytes(set(range(256)) - set(_BRACES))
_START = re.compile(rb'\[(?<![^\n]\[)FEN\s+"([^"\r\n]*)"')
# "e.p." or "ep" after a capture, apart or not: it says nothing that the move does not.
_EN_PASSANT = re.compile(rb"(x[a-h][36][+#!?]*)\s*e\.?p\b\.?")
# A move without its check and annotation marks.
_MOVE_WORD = re.compile(rb"[a-hKQRBNO][a-h1-8xKQRBNO=-]+")


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


class RawGame(NamedTuple):
    """A game's bytes: `number` counts from 1 within its file, `offset` from the file's uncompressed start."""

    number: int
    data: bytes
    offset: int = 0
    defect: Defect | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """The game as text, lines ended by LF, without blank or escaped ones."""
        lines = (line for line in self.data.splitlines() if line.strip() and not line.startswith(b"%"))
        return decode(b"".join(line + b"\n" for line in lines))

    @property
    def ticket(self) -> int:
        """32 bits that stand for the game when samples are drawn: the same bytes have the same ticket."""
        return next(tickets_of([self.data[:TICKET_BYTES]]))

    @property
    def id(self) -> str:
        """16 hex digits that depend on start and moves alone: the same game in two files has one id.

        >>> RawGame(1, b'[White "A"]\\n1. e4 {best by test} e5 2. Nf3+ *').id == RawGame(7, b"e4 e5 Nf3").id
        True
        """
        tags, moves = self.sections()
        hides = b";" in moves or b"\n[" in moves or moves.startswith(b"[")
        plain = None if hides else without_comments(moves)
        return id_of(_START.findall(tags), _NOT_MOVES.sub(b"", moves) if plain is None else plain)

    def sections(self) -> tuple[bytes, bytes]:
        """The tags and the rest."""
        section = _TAG_SECTION.match(self.data)
        end = section.end() if section else 0
        return self.data[:end], self.data[end:]

    def judged(self) -> "RawGame":
        """The same game, with the defect that its bytes alone show."""
        if self.defect or not _ends_in_comment(self.sections()[1]):
            return self
        return self._replace(defect=Defect.OPEN_COMMENT, detail="a comment is never closed")


def without_comments(moves: bytes) -> bytes | None:
    """The moves without what braces hold; None unless they open and close in turn."""
    braces = moves.translate(None, _ALL_BUT_BRACES)
    if braces != _BRACES * (len(braces) // 2):
        return None
    return b"".join(moves.replace(b"}", b"{").split(b"{")[::2])


def without_en_passant(moves: bytes) -> bytes:
    """The moves without the mark of an en passant capture.

    >>> without_en_passant(b"5. exf6ep gxf6 6. bxa6 e.p.")
    b'5. exf6 gxf6 6. bxa6'
    """
    return _EN_PASSANT.sub(rb"\1", moves) if b"p" in moves else moves


def tickets_of(beginnings: Iterable[bytes]) -> Iterator[int]:
    """The tickets of games by their first `TICKET_BYTES`, or all there is."""
    return map(zlib.crc32, map(bytes.rstrip, beginnings))


def id_of(start: list[bytes], moves: bytes) -> str:
    """The id of a game by the FEN it starts from, if any, and its moves without comments."""
    words = _MOVE_WORD.findall(without_en_passant(moves))
    return hashlib.sha256(b" ".join(start + words)).hexdigest()[:16]


def decode(data: bytes) -> str:
    """UTF-8 if it is UTF-8, else Latin-1: a file may change its encoding midway."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _ends_in_comment(moves: bytes) -> bool:
    if b";" in moves:
        moves = _without_line_comments(moves)
    return moves.rfind(b"{") > moves.rfind(b"}")


def _without_line_comments(moves: bytes) -> bytes:
    """What `;` hides may hold braces, and braces may hide a `;`: the one that comes first wins."""
    return re.sub(rb"(\{[^}]*(?:\}|\Z))|;[^\n]*", lambda match: match[1] or b"", moves)
