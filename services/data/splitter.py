"""Lines to the text of one game at a time, so that a broken game cannot swallow its neighbours.

Games are cut apart before anything parses them: an unclosed comment ends with its game, a blank line
inside the moves does not end it. Knows nothing of chess rules: `services.data.games` reads the text.
What cannot be read becomes a `RawGame` with a defect, in its place among the others.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from services.data.files import DAMAGE, decode, read_lines

MAX_GAME_CHARS = 1 << 20
"""A longer game is passed over: no annotator writes a megabyte about one."""

# A tag pair at the start of a line; `[%clk` of a broken comment is none.
_TAG = re.compile(r'\[([A-Za-z0-9][A-Za-z0-9_+#=:-]*)\s+"')
# What opens or closes a comment, and what stands between.
_COMMENT_PART = re.compile(r"[;{}]|[^;{}]+")
_LETTER = re.compile(r"[A-Za-z]")
# Movetext that can only be the beginning of a game: White's first move.
_FIRST_MOVE = re.compile(r"\s*1\s*\.(?!\.)")
_RESULTS = ("1-0", "0-1", "1/2-1/2", "*")

# Everything but moves: comments, rest-of-line comments, tag pairs.
_NOT_MOVES = re.compile(r"\{[^}]*\}|;[^\n]*|^\[[^\n]*$", re.MULTILINE)
_START = re.compile(r'^\[FEN\s+"([^"\n]*)"', re.MULTILINE)
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
        """16 hex digits that depend on start and moves alone: the same game in two files has one id.

        >>> RawGame(1, '[White "A"]\\n1. e4 {best by test} e5 2. Nf3+ *').id == RawGame(7, "e4 e5 Nf3").id
        True
        """
        words = _START.findall(self.text) + _MOVE_WORD.findall(_NOT_MOVES.sub("", self.text))
        return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


def read_raw_games(path: Path) -> Iterator[RawGame]:
    """The games of a `.pgn`, `.pgn.zst`, `.pgn.gz` or `.pgn.bz2` file, in order.

    A damaged file gives what could be read, then one `RawGame` with the defect `DAMAGED_FILE`.
    """
    splitter = _Splitter()
    try:
        for line in read_lines(path):
            game = splitter.feed(line)
            if game:
                yield game
    except DAMAGE as error:
        yield from splitter.abandon(f"{type(error).__name__}: {error}; what came before it is kept")
        return
    last = splitter.finish()
    if last:
        yield last


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
        game = RawGame(self._number, decode("\n".join(self._lines) + "\n"))
        if self._chars > MAX_GAME_CHARS:
            game = replace(game, defect=Defect.TOO_LONG, detail=f"{self._chars} characters")
        elif self._in_comment:
            game = replace(game, defect=Defect.OPEN_COMMENT, detail="a comment is never closed")
        self._reset()
        return game

    def abandon(self, detail: str) -> Iterator[RawGame]:
        """The game gathered so far if its result was read, then the one that nobody can trust to be whole."""
        whole = self.finish() if self._ended else None
        if whole:
            yield whole
        broken = self.finish() or RawGame(self._number + 1, "")
        yield replace(broken, defect=Defect.DAMAGED_FILE, detail=detail)

    def _begins_game(self, line: str, tag: re.Match[str] | None) -> bool:
        if tag:
            return self._blank if self._in_comment else self._has_moves or tag[1] in self._tags
        if self._in_comment or line.lstrip().startswith(("{", ";", "(", ")", "$")):
            return False
        return self._ended or (self._has_moves and self._blank and _FIRST_MOVE.match(line) is not None)

    def _add(self, line: str, tag: re.Match[str] | None) -> None:
        self._blank = False
        self._chars += len(line) + 1
        if self._chars <= MAX_GAME_CHARS:
            self._lines.append(line)
        if not self._has_moves and not self._in_comment and line.startswith("["):
            self._tags.update([tag[1]] if tag else [])
            return
        moves = self._outside_comments(line)
        self._has_moves = self._has_moves or _LETTER.search(moves) is not None
        self._ended = self._has_moves and not self._in_comment and moves.endswith(_RESULTS)

    def _outside_comments(self, line: str) -> str:
        """What of the line is no comment; remembers whether one is left open."""
        if not self._in_comment and "{" not in line and ";" not in line:
            return line.rstrip()
        kept = []
        for part in _COMMENT_PART.findall(line):
            if self._in_comment:
                self._in_comment = part != "}"
            elif part == ";":
                break
            elif part == "{":
                self._in_comment = True
            else:
                kept.append(part)
        return "".join(kept).rstrip()
