"""Splits blocks of bytes into games, at several hundred megabytes a second.

Games of the usual layout are found a block at a time by `chess_datasets.pgn.layout`. The rest is split line
by line by `rookery.pgn.splitter`, until the next game that begins with an `Event` tag. Both cut at the same
places. Memory use is one block and one game. Nothing is parsed here.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from chess_datasets.pgn.layout import EVENT, NEXT, Games, games_like_others
from rookery.pgn.rawgame import MAX_GAME_BYTES, RawGame
from rookery.pgn.splitter import Splitter

# Where a game begins for certain, whatever came before.
_BEGINNING = re.compile(rb'\n\r?\n(?=\[Event ")')
_OVERLAP_BYTES = 16
# A CR at the end of a block may be half of a CRLF.
_LINE = re.compile(rb"[^\r\n]*+(?:\n|\r\n|\r(?!\n|\Z))")

TICKET_BYTES = 256
"""Only this much of a game, the tags that identify it, decides which samples it is in."""

# Odd factors, one for each 64-bit word of what a ticket hashes, and the finalizer of SplitMix64.
_FACTORS = np.arange(1, TICKET_BYTES // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
_MIXES = (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))


def beginning(data: bytes | bytearray, at: int = 0) -> int:
    """Where, from `at` on, a game begins for certain, whatever came before; -1 if nowhere."""
    match = _BEGINNING.search(data, at)
    return match.end() if match else -1


def tickets_of(text: bytes, starts: Sequence[int], ends: Sequence[int]) -> NDArray[np.uint64]:
    """A 64-bit hash of each game from `starts` to `ends` in a text, which decides the samples that it is in.

    It depends only on the first `TICKET_BYTES` of the game without the white space at its end: their words,
    each times its odd factor, are added up, and the sum is mixed by the finalizer of SplitMix64 (Steele, Lea
    and Flood, 2014). Shorter games are padded with zeros.
    """
    first, end = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    words = np.zeros((len(first), TICKET_BYTES // 8), "<u8")
    # At most four of the last bytes are line ends, in almost all games. The others are looked at one by one.
    last = end - 5
    is_long = last - first >= TICKET_BYTES - 1
    is_long[is_long] = np.ndarray(len(text), np.uint8, text)[last[is_long]] > ord(" ")
    windows = np.ndarray(max(0, len(text) - TICKET_BYTES + 1), f"V{TICKET_BYTES}", text, strides=(1,))
    words[is_long] = windows[first[is_long]].view("<u8").reshape(-1, TICKET_BYTES // 8)
    for place in np.flatnonzero(~is_long).tolist():
        game = text[starts[place] : ends[place]].rstrip()[:TICKET_BYTES]
        words[place] = np.frombuffer(game.ljust(TICKET_BYTES, b"\0"), "<u8")
    tickets: NDArray[np.uint64] = np.einsum("ij,j->i", words, _FACTORS)
    for shift, factor in _MIXES:
        tickets = (tickets ^ tickets >> shift) * factor
    tickets ^= tickets >> np.uint64(31)
    return tickets


Keep = Callable[[NDArray[np.uint64]], Sequence[int]]
"""Chooses some of the games by their tickets. Returns the indexes of those chosen."""


class Scanner:
    """Splits blocks into games. Numbers begin at 1 and offsets at 0, unless `rebase` shifts them. With
    `keep`, it yields only the games that are chosen by their first bytes, and counts the others."""

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep
        self._number = 1
        self._offset = 0
        self._buffer = b""
        self._blocks: list[bytes] = []  # not yet joined to the buffer
        self._waiting_bytes = 0
        self._at = 0
        self._recognised: Games | None = None
        self._splitter: Splitter | None = None
        self._lost = False

    @property
    def games(self) -> int:
        """The number of games that have ended so far, chosen or not."""
        return self._number - 1

    def feed(self, block: bytes) -> Iterator[RawGame]:
        """The games that are known to end in this block."""
        self._blocks.append(block)
        self._waiting_bytes += len(block)
        size = len(self._buffer) - self._at + self._waiting_bytes
        if b"\n" not in block and b"\r" not in block and size <= MAX_GAME_BYTES:
            return  # no line ends here. It is joined with what follows, because joining copies the buffer
        self._join_blocks()
        while not self._lost or self._find_beginning():
            if self._splitter is None:
                yield from self._recognise()
                short = len(self._buffer) - self._at <= MAX_GAME_BYTES
                if short and _BEGINNING.search(self._buffer, self._at) is None:
                    return  # with more bytes, this game may turn out to have the usual layout
                self._splitter = Splitter(number=self._number, offset=self._offset)
            yield from self._split()
            if self._splitter is not None:
                return

    def _join_blocks(self) -> None:
        self._buffer = b"".join((self._buffer[self._at :], *self._blocks))
        self._blocks, self._waiting_bytes = [], 0
        self._at = 0
        self._recognised = None

    def finish(self) -> Iterator[RawGame]:
        """The games that remain when there are no more blocks."""
        self._join_blocks()
        end = self._offset + len(self._buffer) - self._at
        for game in self.feed(NEXT):
            yield game._replace(data=game.data[: end - game.offset])
        last = self._splitter.finish() if self._splitter else None
        if last:
            self._number += 1
            if self._passes(last):
                yield last

    def abandon(self, detail: str) -> Iterator[RawGame]:
        """The games that remain when the next block is damaged. One game has the defect `DAMAGED_FILE`.
        Blocks that come after it are read from the first certain beginning on."""
        self._join_blocks()
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
        """Skips to where a game begins for certain, and returns whether there is such a place. If not, the
        last bytes are kept: they may be the first half of such a place."""
        at = beginning(self._buffer, self._at)
        self._lost = at < 0
        self._skip((at if at >= 0 else max(self._at, len(self._buffer) - _OVERLAP_BYTES)) - self._at)
        return not self._lost

    def _skip(self, size: int) -> None:
        self._at += size
        self._offset += size

    def _recognise(self) -> Iterator[RawGame]:
        """The games from here on that have the usual layout, up to the first that does not."""
        buffer, keep = self._buffer, self._keep
        while ends := self._usual_ends():
            starts, number, shift = [self._at, *ends[:-1]], self._number, self._offset - self._at
            self._number += len(ends)
            self._skip(ends[-1] - self._at)
            places: Sequence[int] = range(len(ends))
            if keep:
                places = keep(tickets_of(buffer, starts, ends))
            for place in places:
                start = starts[place]
                yield RawGame(number + place, buffer[start : ends[place]], start + shift)

    def _usual_ends(self) -> list[int]:
        """The ends of some successive games from here on that have the usual layout."""
        if self._recognised is None:
            if beginning(self._buffer, self._at) < 0:
                return []
            self._recognised = games_like_others(self._buffer, self._at)
        return self._recognised.run(self._at)

    def _passes(self, game: RawGame) -> bool:
        return self._keep is None or len(self._keep(tickets_of(game.data, [0], [len(game.data)]))) > 0

    def _split(self) -> Iterator[RawGame]:
        """The games that are split line by line: to the end of the block, or to the next `Event` tag."""
        while self._splitter and (line := self._next_line()):
            game = self._splitter.feed(line)
            if game and line.startswith(EVENT):
                self._splitter = None  # and the line is read again, as the beginning of a game
            else:
                self._skip(len(line))
            if game:
                self._number = game.number + 1
                if self._passes(game):
                    yield game

    def _next_line(self) -> bytes:
        """A whole line, or a piece of an endless one; nothing when there is none yet."""
        match = _LINE.match(self._buffer, self._at)
        if match:
            return match[0]
        if len(self._buffer) - self._at > MAX_GAME_BYTES:
            return self._buffer[self._at :]
        return b""
