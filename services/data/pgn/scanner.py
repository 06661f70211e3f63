"""Splits blocks of bytes into games, at several hundred megabytes per second.

Games with the usual layout are recognised a block at a time by `services.data.pgn.layout`. The others go to
`services.data.pgn.splitter`, line by line, up to the next game that begins with an `Event` tag. The result
is the same as if the splitter had read everything. At most a block and a game are in memory. Nothing is
parsed here.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from services.data.pgn.layout import EVENT, Games, games_like_others
from services.data.pgn.rawgame import MAX_GAME_BYTES, TICKET_BYTES, RawGame
from services.data.pgn.splitter import Splitter

# Here a game begins for certain, whatever came before.
_BEGINNING = re.compile(rb'\n\r?\n(?=\[Event ")')
_OVERLAP_BYTES = 16
# Appended at the end, so that the last game is recognised like the others.
_AFTER_THE_LAST = b"\n\n" + EVENT
# A CR at the end of a block is no line end yet: an LF may follow.
_LINE = re.compile(rb"[^\r\n]*+(?:\n|\r\n|\r(?!\n|\Z))")


def beginning(data: bytes | bytearray, at: int = 0) -> int:
    """The first offset from `at` on where a game begins for certain; -1 if there is none."""
    found = _BEGINNING.search(data, at)
    return found.end() if found else -1


Keep = Callable[[Sequence[bytes]], Sequence[int]]
"""Takes the first `TICKET_BYTES` of some games and returns the indices of the wanted ones."""


class Scanner:
    """Takes blocks and yields games. Numbers start at 1 and offsets at 0, unless `rebase` is called.

    With `keep`, only the games that it chooses are yielded; the others are only counted.
    """

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep
        self._number = 1
        self._offset = 0
        self._buffer = b""
        self._at = 0
        self._recognised: Games | None = None
        self._splitter: Splitter | None = None
        self._lost = False

    @property
    def games(self) -> int:
        """The number of games that have ended so far, yielded or not."""
        return self._number - 1

    def feed(self, block: bytes) -> Iterator[RawGame]:
        """The games whose end is known with this block."""
        self._buffer = self._buffer[self._at :] + block
        self._at = 0
        self._recognised = None
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
        """The remaining games, after the last block."""
        end = self._offset + len(self._buffer) - self._at
        for game in self.feed(_AFTER_THE_LAST):
            yield game._replace(data=game.data[: end - game.offset])
        last = self._splitter.finish() if self._splitter else None
        if last:
            self._number += 1
            if self._wants(last):
                yield last

    def abandon(self, detail: str) -> Iterator[RawGame]:
        """The remaining games if the next block is damaged. The last has the defect `DAMAGED_FILE`.

        Later blocks are read from the first certain beginning of a game on.
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
        """Shifts numbers and offsets, as if this many games and bytes had come before."""
        self._number += games
        self._offset += size
        if self._splitter:
            self._splitter.rebase(games=games, size=size)

    def _find_beginning(self) -> bool:
        """Skips to the next certain beginning. If there is none, keeps the end, which may belong to one."""
        at = beginning(self._buffer, self._at)
        self._lost = at < 0
        self._skip((at if at >= 0 else max(self._at, len(self._buffer) - _OVERLAP_BYTES)) - self._at)
        return not self._lost

    def _skip(self, size: int) -> None:
        self._at += size
        self._offset += size

    def _recognise(self) -> Iterator[RawGame]:
        """The games with the usual layout from here on, up to the first that has another."""
        if len(self._buffer) - self._at < len(EVENT):
            return
        if self._recognised is None:
            self._recognised = games_like_others(self._buffer, self._at)
        starts, ends = self._recognised.run(self._at)
        if not starts:
            return
        buffer, number, shift = self._buffer, self._number, self._offset - self._at
        self._number += len(starts)
        self._skip(ends[-1] - self._at)
        places: Sequence[int] = range(len(starts))
        if self._keep:
            places = self._keep(
                [
                    buffer[start : end if end - start < TICKET_BYTES else start + TICKET_BYTES]
                    for start, end in zip(starts, ends, strict=True)
                ]
            )
        for place in places:
            start, end = starts[place], ends[place]
            yield RawGame(number + place, buffer[start:end], start + shift)

    def _wants(self, game: RawGame) -> bool:
        return self._keep is None or len(self._keep([game.data[:TICKET_BYTES]])) > 0

    def _needs_more(self) -> bool:
        """Whether the current game may still turn out to have the usual layout."""
        short = len(self._buffer) - self._at <= MAX_GAME_BYTES
        return short and _BEGINNING.search(self._buffer, self._at) is None

    def _split(self) -> Iterator[RawGame]:
        """Splits by lines, up to the end of the block or the next game that begins with an `Event` tag."""
        while self._splitter and (line := self._next_line()):
            game = self._splitter.feed(line)
            if game and line.startswith(EVENT):
                self._splitter = None  # the line is read again, as the beginning of a game
            else:
                self._skip(len(line))
            if game:
                self._number = game.number + 1
                if self._wants(game):
                    yield game

    def _next_line(self) -> bytes:
        """A whole line, or a part of an extremely long one; empty if the line is still incomplete."""
        found = _LINE.match(self._buffer, self._at)
        if found:
            return found[0]
        if len(self._buffer) - self._at > MAX_GAME_BYTES:
            return self._buffer[self._at :]
        return b""
