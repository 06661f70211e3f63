"""Blocks of bytes to games, at a gigabyte a second, cut exactly where the careful reader cuts.

A game that looks like every other game (its tags, a blank line, its moves, a blank line, the `Event`
tag of the next) is recognised by one regular expression; `services.data.pgn.splitter` decides about the
rest, line by line, and hands back at the next game that begins with an `Event` tag. Memory is a block
and a game. Nothing is parsed here.
"""

import re
from collections.abc import Callable, Iterator

from services.data.pgn.rawgame import MAX_GAME_BYTES, TICKET_BYTES, RawGame
from services.data.pgn.splitter import Splitter

# Where a game begins for certain, whatever came before.
_BEGINNING = re.compile(rb'\n\r?\n(?=\[Event ")')
_OVERLAP_BYTES = 16
_FIRST_TAG = b'[Event "'
# Ends what was read, so that the last game is recognised like the others.
_AFTER_THE_LAST = b"\n\n" + _FIRST_TAG
# A CR at the end of a block may be half of a CRLF.
_LINE = re.compile(rb"[^\r\n]*+(?:\n|\r\n|\r(?!\n|\Z))")


def _tags(newline: str, not_newline: str) -> str:
    """Tags of which only the first is `Event`, blank lines, and what begins neither a tag nor an escape."""
    to_end = rf"[^{not_newline}]*+{newline}"
    return rf'\[Event "{to_end}(?:\[(?!Event\s){to_end})*+(?:{newline})++(?=[^{not_newline}\[%\xef])'


def _game_like_others(newline: str, not_newline: str) -> re.Pattern[bytes]:
    """Tags, moves, blank lines, the next `Event`.

    No line of the moves begins like a tag, an escape or a byte order mark, and none but the last ends
    in a result or a space. Possessive throughout: what does not match fails at once.
    """
    goes_on = rf"(?<!-0{newline})(?<!-1{newline})(?<!/2{newline})(?<![*\s]{newline})"
    line = rf"[^{not_newline}\[%\xef][^{not_newline}]*+{newline}"
    moves = rf"(?:{line}(?:(?={newline})|{goes_on}))++"
    return re.compile(rf'{_tags(newline, not_newline)}{moves}(?:{newline})++(?=\[Event ")'.encode())


_UNIX_TAGS = re.compile(_tags(r"\n", r"\n").encode())
_UNIX = _game_like_others(r"\n", r"\n")
_UNIX_AMONG_OTHERS = _game_like_others(r"\n", r"\r\n")
_WINDOWS = _game_like_others(r"\r\n", r"\r\n")


def beginning(data: bytes | bytearray, at: int = 0) -> int:
    """Where, from `at` on, a game begins for certain, whatever came before; -1 if nowhere."""
    found = _BEGINNING.search(data, at)
    return found.end() if found else -1


Keep = Callable[[bytes], bool]
"""Whether a game is wanted, by its first `TICKET_BYTES`."""


class Scanner:
    """Takes blocks, gives games, numbered from 1, at offsets from 0 until `rebase` says otherwise.

    With `keep` it gives those games whose first bytes pass, and counts the others.
    """

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep
        self._number = 1
        self._offset = 0
        self._buffer = b""
        self._at = 0
        self._splitter: Splitter | None = None
        self._lost = False

    @property
    def games(self) -> int:
        """Games that have ended so far, given or not."""
        return self._number - 1

    def feed(self, block: bytes) -> Iterator[RawGame]:
        """The games that are known to end in this block."""
        self._buffer = self._buffer[self._at :] + block
        self._at = 0
        while not self._lost or self._find_beginning():
            if self._splitter is None:
                yield from self._recognise()
                if self._needs_more():
                    return
                self._splitter = Splitter(number=self._number, offset=self._offset)
            yield from self._split()
            if self._splitter is not None:
                return

    def finish(self) -> Iterator[RawGame]:
        """What is left when there are no more blocks."""
        end = self._offset + len(self._buffer) - self._at
        for game in self.feed(_AFTER_THE_LAST):
            yield game._replace(data=game.data[: end - game.offset])
        last = self._splitter.finish() if self._splitter else None
        if last:
            self._number += 1
            if self._wants(last):
                yield last

    def abandon(self, detail: str) -> Iterator[RawGame]:
        """What is left when the next block is damaged: one game has the defect `DAMAGED_FILE`.

        Blocks that come after it are read from the first certain beginning on.
        """
        while self._splitter is None:
            self._splitter = Splitter(number=self._number, offset=self._offset)
            if not self._lost:
                yield from self._split()
        for game in self._splitter.abandon(detail):
            self._number += 1
            yield game
        self._splitter = None
        self._lost = True
        self._skip(len(self._buffer) - self._at)

    def rebase(self, *, games: int, size: int) -> None:
        """Counts as if so many games and bytes had come before."""
        self._number += games
        self._offset += size
        if self._splitter:
            self._splitter.rebase(games=games, size=size)

    def _find_beginning(self) -> bool:
        """Leaves out what comes before it, but for the line ends that may belong to it."""
        at = beginning(self._buffer, self._at)
        self._lost = at < 0
        self._skip((at if at >= 0 else max(self._at, len(self._buffer) - _OVERLAP_BYTES)) - self._at)
        return not self._lost

    def _skip(self, size: int) -> None:
        self._at += size
        self._offset += size

    def _recognise(self) -> Iterator[RawGame]:
        buffer, at, keep = self._buffer, self._at, self._keep
        end_of_game = _end_of_any if b"\r" in buffer else _end_of_unix
        while (end := end_of_game(buffer, at)) > 0 and (size := end - at) <= MAX_GAME_BYTES:
            begun, offset = at, self._offset
            self._number += 1
            self._offset = offset + size
            self._at = at = end
            if keep is None or keep(buffer[begun : begun + TICKET_BYTES if size > TICKET_BYTES else end]):
                yield RawGame(self._number - 1, buffer[begun:end], offset)

    def _wants(self, game: RawGame) -> bool:
        return self._keep is None or self._keep(game.data[:TICKET_BYTES])

    def _needs_more(self) -> bool:
        """Whether the game at hand may still turn out to be like others."""
        short = len(self._buffer) - self._at <= MAX_GAME_BYTES
        return short and _BEGINNING.search(self._buffer, self._at) is None

    def _split(self) -> Iterator[RawGame]:
        """Line by line, up to the end of the block or the next game that begins as games should."""
        while self._splitter and (line := self._next_line()):
            game = self._splitter.feed(line)
            if game and line.startswith(_FIRST_TAG):
                self._splitter = None  # and the line is read again, as the beginning of a game
            else:
                self._skip(len(line))
            if game:
                self._number = game.number + 1
                if self._wants(game):
                    yield game

    def _next_line(self) -> bytes:
        """A whole line, or a piece of an endless one; nothing when there is none yet."""
        found = _LINE.match(self._buffer, self._at)
        if found:
            return found[0]
        if len(self._buffer) - self._at > MAX_GAME_BYTES:
            return self._buffer[self._at :]
        return b""


def _end_of_unix(buffer: bytes, at: int) -> int:
    """Where the game at `at` ends if it is like others, else 0."""
    tags = _UNIX_TAGS.match(buffer, at)
    if tags is None:
        return 0
    # Most games have all their moves on one line, whose end is found faster than a pattern walks there.
    line = buffer.find(b"\n", tags.end())
    if buffer.startswith(_AFTER_THE_LAST, line):
        return line + 2
    found = _UNIX.match(buffer, at)
    return found.end() if found else 0


def _end_of_any(buffer: bytes, at: int) -> int:
    found = _WINDOWS.match(buffer, at) or _UNIX_AMONG_OTHERS.match(buffer, at)
    return found.end() if found else 0
