"""Gives access to every game of some files by number, in bounded memory.

If a file has an index beside it (`rookery data index`), only the requested games are read, however large the
file is. Any other file is read once from start to end, and its text is kept in a temporary file. This suits
files that fit on the disk uncompressed and are read in seconds. Games are parsed on request, and recently
used ones are cached.
"""

import logging
import os
import tempfile
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import get_args

from chess_datasets.pgn.games import Game, SkippedGame, in_split
from chess_datasets.pgn.index import GAME_ID, GameIndex, find_index
from chess_datasets.pgn.parser import parse_game, skip
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.store.files import Fingerprint
from rookery.errors import NotFound
from rookery.metrics import GAMES_SKIPPED
from rookery.pgn.rawgame import RawGame
from rookery.trace import Split

logger = logging.getLogger(__name__)

_SOURCE_DIGITS = 8
"""The number of digits of a file's SHA-256 with which the ids of its positions begin."""

GAMES_KEPT = 1 << 16
"""The most parsed games in memory, under a kilobyte each."""


class SpooledFile:
    """A file without an index, with the methods of a `GameIndex`. Thread-safe. Its text is copied to a
    temporary file. Takes 32 bytes of memory per game."""

    def __init__(self, location: str) -> None:
        self.broken: list[RawGame] = []
        """The games whose bytes alone show a defect."""
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._ends = array("Q", [0])
        self._offsets = array("Q")
        self._ids = array("Q")
        self._members = {"train": array("L"), "heldout": array("L")}
        fingerprint = Fingerprint(location)
        for raw in read_raw_games(location, fingerprint.update):
            self._add(raw.checked())
        self.source = fingerprint.source
        self._spool.flush()
        self._by_id = array("L", sorted(range(len(self)), key=self._ids.__getitem__))

    def __len__(self) -> int:
        return len(self._offsets)

    def count(self, split: Split) -> int:
        return len(self) if split == "all" else len(self._members[split])

    def number(self, split: Split, index: int) -> int:
        return index if split == "all" else self._members[split][index]

    def raw(self, number: int) -> RawGame:
        start, end = self._ends[number], self._ends[number + 1]
        data = os.pread(self._spool.fileno(), end - start, start)
        return RawGame(number + 1, data, self._offsets[number])

    def find(self, id: str) -> int | None:
        if not GAME_ID.fullmatch(id):
            return None
        key = int(id, 16)
        place = bisect_left(self._by_id, key, key=self._ids.__getitem__)
        number = self._by_id[place] if place < len(self._by_id) else None
        return number if number is not None and self._ids[number] == key else None

    def close(self) -> None:
        self._spool.close()

    def _add(self, raw: RawGame) -> None:
        game_id = "0" if raw.defect else raw.id
        if raw.defect:
            self.broken.append(raw)
        else:
            self._members["heldout" if in_split(game_id, "heldout") else "train"].append(len(self))
        self._ids.append(int(game_id, 16))
        self._spool.write(raw.data)
        self._offsets.append(raw.offset)
        self._ends.append(self._spool.tell())


class GameCollection:
    """The games of files, numbered from 0. Thread-safe. Raises `SetupError` if a file cannot be read, or its
    index belongs to another file."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._files = [find_index(str(path)) or SpooledFile(str(path)) for path in paths]
        self.sources = [file.source for file in self._files]
        self.skipped: dict[int, SkippedGame] = {}
        self._first_of = [0, *accumulate(map(len, self._files))]
        self._before = {
            split: [0, *accumulate(file.count(split) for file in self._files)] for split in get_args(Split)
        }
        self._parse = lru_cache(GAMES_KEPT)(self._load)
        for first, file in zip(self._first_of, self._files, strict=False):
            for raw in file.broken:
                if raw.defect:
                    self._skip(first + raw.number - 1, skip(raw, file.source, raw.defect, raw.detail))
        logger.info(
            "%d games in %s, %d of them held out",
            len(self),
            ", ".join(repr(source.path) for source in self.sources),
            self.count("heldout"),
        )

    def __len__(self) -> int:
        return self._first_of[-1]

    def count(self, split: Split) -> int:
        """The number of a split's games. The split `all` includes broken games."""
        return self._before[split][-1]

    def number(self, split: Split, index: int) -> int:
        """The number of the game at `index` among those of a split, both counted from 0."""
        before = self._before[split]
        part = bisect_right(before, index) - 1
        return self._first_of[part] + self._files[part].number(split, index - before[part])

    def game(self, number: int) -> Game | None:
        """A game, or None if it is broken. Each broken game is counted and logged once."""
        game = self._parse(number)
        if isinstance(game, Game):
            return game
        if number not in self.skipped:
            self._skip(number, game)
        return None

    def find(self, id: str) -> tuple[Game, str]:
        """A game and its text, by its id (a hash of its moves) or by source and number (`8999067f:102`).

        The id of a position, `8999067f:102:9`, names its game too. Raises `NotFound` if there is no such
        game, or it is broken.
        """
        number = self._by_number(id) if ":" in id else self._by_hash(id)
        if number is None:
            raise NotFound(f"no game {id[:40]!r} in {len(self)} games")
        game = self.game(number)
        if game is None:
            raise NotFound(f"game {id!r} was skipped: {self.skipped[number]}")
        file, within = self._locate(number)
        return game, file.raw(within).text

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _by_hash(self, id: str) -> int | None:
        for first, file in zip(self._first_of, self._files, strict=False):
            number = file.find(id)
            if number is not None:
                return first + number
        return None

    def _by_number(self, id: str) -> int | None:
        source, number, *_ = id.split(":")
        within = int(number) - 1 if number.isascii() and number.isdecimal() and len(number) < 20 else -1
        for first, file in zip(self._first_of, self._files, strict=False):
            is_source = file.source.sha256.startswith(source) and len(source) >= _SOURCE_DIGITS
            if is_source and 0 <= within < len(file):
                return first + within
        return None

    def _load(self, number: int) -> Game | SkippedGame:
        if number in self.skipped:
            return self.skipped[number]
        file, within = self._locate(number)
        return parse_game(file.raw(within), file.source)

    def _locate(self, number: int) -> tuple[GameIndex | SpooledFile, int]:
        index = bisect_right(self._first_of, number) - 1
        return self._files[index], number - self._first_of[index]

    def _skip(self, number: int, game: SkippedGame) -> None:
        self.skipped[number] = game
        GAMES_SKIPPED.labels(game.defect.value).inc()
        logger.warning("skipped %s", game)
