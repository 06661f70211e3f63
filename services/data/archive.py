"""Every game of some files within reach by number, in bounded memory.

The files are read once, front to back, and the text of each game goes into an unnamed temporary
file; games are parsed when they are asked for, and the last ones are kept. Memory is about 16 bytes
a game; the disk holds the files uncompressed, so this suits what fits there and can be read through
at start (a hundred thousand games take seconds), not a monthly dump of Lichess.
"""

import logging
import os
import tempfile
from array import array
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from rookery.metrics import GAMES_SKIPPED
from services.data.files import Source, identify
from services.data.games import Game, SkippedGame, Split, in_split, parse
from services.data.splitter import RawGame, read_raw_games

logger = logging.getLogger(__name__)

GAMES_KEPT = 1 << 16
"""Parsed games in memory, under a kilobyte each."""


class Archive:
    """The games of files, by number from 0. Thread-safe.

    Raises:
        SetupError: a file cannot be read, or none holds the text of a game.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.sources = [identify(path) for path in paths]
        self.skipped: dict[int, SkippedGame] = {}
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._ends = array("Q", [0])
        self._first_of: list[int] = []
        self._members = {"train": array("L"), "heldout": array("L")}
        for source in self.sources:
            self._add(source)
        self._parse = lru_cache(GAMES_KEPT)(self._load)
        logger.info(
            "%d games in %s, %d of them held out",
            len(self),
            ", ".join(repr(source.path) for source in self.sources),
            len(self._members["heldout"]),
        )

    def __len__(self) -> int:
        return len(self._ends) - 1

    def members(self, split: Split) -> Sequence[int]:
        """Numbers of the games of a split."""
        return range(len(self)) if split == "all" else self._members[split]

    def game(self, number: int) -> Game | None:
        """A game, or None when it is broken: then it is counted and named, once."""
        game = self._parse(number)
        if isinstance(game, Game):
            return game
        if number not in self.skipped:
            self._skip(number, game)
        return None

    def close(self) -> None:
        self._spool.close()

    def _add(self, source: Source) -> None:
        self._first_of.append(len(self))
        for raw in read_raw_games(Path(source.path)):
            number = len(self)
            if raw.defect:
                self._skip(number, SkippedGame(source.path, raw.number, raw.defect, raw.detail))
            else:
                self._members["heldout" if in_split(raw.id, "heldout") else "train"].append(number)
            self._spool.write(raw.text.encode())
            self._ends.append(self._spool.tell())
        self._spool.flush()

    def _load(self, number: int) -> Game | SkippedGame:
        if number in self.skipped:
            return self.skipped[number]
        start, end = self._ends[number], self._ends[number + 1]
        text = os.pread(self._spool.fileno(), end - start, start).decode()
        index = sum(first <= number for first in self._first_of) - 1
        raw = RawGame(number - self._first_of[index] + 1, text)
        return parse(raw, self.sources[index])

    def _skip(self, number: int, game: SkippedGame) -> None:
        self.skipped[number] = game
        GAMES_SKIPPED.labels(game.defect.value).inc()
        logger.warning("skipped %s", game)
