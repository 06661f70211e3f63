"""Splits lines into games, so that a broken game cannot affect its neighbours.

Games are separated before they are parsed: an unclosed comment ends with its game, and a blank line inside
the moves does not end the game. Chess rules are not used: `rookery.pgn.reader` reads the text.
Whatever cannot be read becomes a `RawGame` with a defect, in its place among the others.

This is the slow way, a line at a time. `chess_datasets.pgn.scanner` is fast and uses it for games that do not
have the usual layout.
"""

import re
from collections.abc import Iterator

from rookery.pgn.rawgame import MAX_GAME_BYTES, Defect, RawGame

# A tag pair at the start of a line. `[%clk`, from a broken comment, is none.
_TAG = re.compile(rb'\[([A-Za-z0-9][A-Za-z0-9_+#=:-]*)\s+"')
_COMMENT = re.compile(rb"\{[^}]*\}?")
# The characters that open or close a comment, and the text between them.
_COMMENT_PART = re.compile(rb"[;{}]|[^;{}]+")
_LETTER = re.compile(rb"[A-Za-z]")
# Movetext that can only begin a game: White's first move.
_FIRST_MOVE = re.compile(rb"\s*1\s*\.(?!\.)")
_RESULTS = (b"1-0", b"0-1", b"1/2-1/2", b"*")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split(data: bytes) -> Iterator[RawGame]:
    """The games of a file."""
    splitter = Splitter()
    for line in data.splitlines(keepends=True):
        if game := splitter.feed(line):
            yield game
    if last := splitter.finish():
        yield last


class Splitter:
    """Decides line by line where one game ends and the next begins. `number` and `offset` are those of the
    first game that it returns."""

    def __init__(self, *, number: int = 1, offset: int = 0) -> None:
        self._next_number = number
        self._offset = offset
        self._reset()

    def _reset(self) -> None:
        self._lines: list[bytes] = []
        self._start = self._offset
        self._size = 0
        self._tags: dict[bytes, None] = {}  # used as an ordered set
        self._has_moves = self._in_comment = self._has_result = self._after_blank_line = False

    def feed(self, line: bytes) -> RawGame | None:
        """Takes one line with its end. Returns the previous game if the line begins another, else None."""
        size = len(line)
        line = line.rstrip(b"\r\n").removeprefix(_BYTE_ORDER_MARK)
        game = None
        if not line or line.isspace():
            self._after_blank_line = True
            if self._in_comment and self._size < MAX_GAME_BYTES:  # it ends a paragraph
                self._lines.append(b"")
                self._size += 1
        elif not line.startswith(b"%"):
            tag = _TAG.match(line)
            game = self.finish() if self._begins_game(line, tag) else None
            self._add(line, tag)
        self._offset += size
        return game

    def finish(self) -> RawGame | None:
        """Returns the game read so far, or None if there is none."""
        if not self._lines:
            return None
        data = b"\n".join(self._lines) + b"\n"
        game = RawGame(self._next_number, data, self._start)
        if self._size > MAX_GAME_BYTES:
            game = game._replace(defect=Defect.TOO_LONG, detail=f"{self._size} bytes")
        elif self._in_comment:
            game = game._replace(defect=Defect.OPEN_COMMENT, detail="a comment is never closed")
        self._next_number += 1
        self._reset()
        return game

    def abandon(self, detail: str) -> Iterator[RawGame]:
        """Yields the game read so far if its result was read, then one with the defect `DAMAGED_FILE`."""
        whole = self.finish() if self._has_result else None
        if whole:
            yield whole
        broken = self.finish() or RawGame(self._next_number, b"", self._offset)
        yield broken._replace(defect=Defect.DAMAGED_FILE, detail=detail)
        self._next_number = broken.number + 1

    def rebase(self, *, games: int, size: int) -> None:
        """Shifts numbers and offsets, as if this many games and bytes had come before."""
        self._next_number += games
        self._offset += size
        self._start += size

    def _begins_game(self, line: bytes, tag: re.Match[bytes] | None) -> bool:
        if tag:
            return self._after_blank_line if self._in_comment else self._begins_tags(tag[1])
        if self._in_comment or line.lstrip().startswith((b"{", b";", b"(", b")", b"$")):
            return False
        return self._has_result or (
            self._has_moves and self._after_blank_line and _FIRST_MOVE.match(line) is not None
        )

    def _begins_tags(self, name: bytes) -> bool:
        """Whether a tag begins another game. A tag that is merely repeated does not."""
        if self._has_moves or (self._after_blank_line and name == b"Event"):
            return True
        return name in self._tags and (self._after_blank_line or name == next(iter(self._tags)))

    def _add(self, line: bytes, tag: re.Match[bytes] | None) -> None:
        if not self._lines:
            self._start = self._offset
        self._after_blank_line = False
        self._size += len(line) + 1
        if self._size <= MAX_GAME_BYTES or not self._lines:
            self._lines.append(line[:MAX_GAME_BYTES])
        if not self._has_moves and not self._in_comment and line.startswith(b"["):
            if tag and self._size <= MAX_GAME_BYTES:
                self._tags[tag[1]] = None
            return
        moves = self._outside_comments(line)
        self._has_moves = self._has_moves or _LETTER.search(moves) is not None
        self._has_result = self._has_moves and not self._in_comment and moves.endswith(_RESULTS)

    def _outside_comments(self, line: bytes) -> bytes:
        """The parts of the line that are not comments. Remembers whether a comment is left open."""
        if not self._in_comment and b";" not in line and line.rfind(b"{") <= line.rfind(b"}"):
            return _COMMENT.sub(b"", line).rstrip()
        texts = []
        for part in _COMMENT_PART.findall(line):
            if self._in_comment:
                self._in_comment = part != b"}"
            elif part == b";":
                break
            elif part == b"{":
                self._in_comment = True
            else:
                texts.append(part)
        return b"".join(texts).rstrip()
