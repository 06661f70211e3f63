"""Gives access to every game of some files by number, in bounded memory.

If a file has an index beside it (`rookery data index`), only the requested games are read, however large the
file is. Any other file is read once from start to end, and its text is kept in a temporary file. This suits
files that fit on the disk uncompressed and are read in seconds. Games are parsed on request, and recently
used ones are cached.
"""

import logging
import os
import re
import tempfile
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Protocol, overload

from rookery.errors import NotFound
from rookery.metrics import GAMES_SKIPPED
from services.data.pgn.games import Game, SkippedGame, Split, in_split
from services.data.pgn.index import Index, find_index
from services.data.pgn.parser import parse, skip
from services.data.pgn.rawgame import RawGame
from services.data.pgn.reader import read_raw_games
from services.data.store.files import Fingerprint, Source

logger = logging.getLogger(__name__)

_SOURCE_DIGITS = 8
"""The number of digits of a file's SHA-256 with which the ids of its positions begin."""

GAMES_KEPT = 1 << 16
"""The most parsed games in memory, under a kilobyte each."""


_GAME_ID = re.compile(r"[0-9a-f]{16}")


class GameFile(Protocol):
    """The games of one file, numbered from 0. Thread-safe."""

    @property
    def source(self) -> Source: ...

    @property
    def broken(self) -> Sequence[RawGame]:
        """The games known at the start to have a defect, from their bytes alone."""

    def __len__(self) -> int: ...

    def game_numbers(self, split: Split) -> Sequence[int]:
        """The numbers of the games of a split."""

    def raw(self, number: int) -> RawGame:
        """The game with a number."""

    def find(self, id: str) -> int | None:
        """The number of a game with that id, or None."""

    def close(self) -> None: ...


class IndexedFile:
    """A file with an index. Only the requested games are read."""

    def __init__(self, index: Index) -> None:
        self.source = index.about.source
        self.broken: Sequence[RawGame] = ()
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def game_numbers(self, split: Split) -> Sequence[int]:
        return self._index.game_numbers(split)

    def raw(self, number: int) -> RawGame:
        return self._index.raw(number)

    def find(self, id: str) -> int | None:
        return self._index.find(id) if _GAME_ID.fullmatch(id) else None

    def close(self) -> None:
        self._index.close()


class SpooledFile:
    """A file that is read once and kept as text in a temporary file. Takes 32 bytes of memory per game."""

    def __init__(self, location: str) -> None:
        self.broken: list[RawGame] = []
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

    def game_numbers(self, split: Split) -> Sequence[int]:
        return range(len(self)) if split == "all" else self._members[split]

    def raw(self, number: int) -> RawGame:
        start, end = self._ends[number], self._ends[number + 1]
        data = os.pread(self._spool.fileno(), end - start, start)
        return RawGame(number + 1, data, self._offsets[number])

    def find(self, id: str) -> int | None:
        if not _GAME_ID.fullmatch(id):
            return None
        wanted = int(id, 16)
        place = bisect_left(self._by_id, wanted, key=self._ids.__getitem__)
        found = self._by_id[place] if place < len(self._by_id) else None
        return found if found is not None and self._ids[found] == wanted else None

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
    """The games of files, numbered from 0. Thread-safe.

    Raises:
        SetupError: a file cannot be read, or its index belongs to another file.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._shelves = [_shelf(str(path)) for path in paths]
        self.sources = [shelf.source for shelf in self._shelves]
        self.skipped: dict[int, SkippedGame] = {}
        self._first_of = [0, *accumulate(map(len, self._shelves))]
        self._members = {
            split: _Joined([shelf.game_numbers(split) for shelf in self._shelves], self._first_of)
            for split in ("train", "heldout")
        }
        self._parse = lru_cache(GAMES_KEPT)(self._load)
        for first, shelf in zip(self._first_of, self._shelves, strict=False):
            for raw in shelf.broken:
                if raw.defect:
                    self._skip(first + raw.number - 1, skip(raw, shelf.source, raw.defect, raw.detail))
        logger.info(
            "%d games in %s, %d of them held out",
            len(self),
            ", ".join(repr(source.path) for source in self.sources),
            len(self._members["heldout"]),
        )

    def __len__(self) -> int:
        return self._first_of[-1]

    def game_numbers(self, split: Split) -> Sequence[int]:
        """The numbers of the games of a split. The split `all` includes broken games."""
        return range(len(self)) if split == "all" else self._members[split]

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

        Raises:
            NotFound: there is no such game, or it is broken.
        """
        number = self._numbered(id) if ":" in id else self._hashed(id)
        if number is None:
            raise NotFound(f"no game {id[:40]!r} in {len(self)} games")
        game = self.game(number)
        if game is None:
            raise NotFound(f"game {id!r} was passed over: {self.skipped[number]}")
        shelf, within = self._place(number)
        return game, shelf.raw(within).text

    def close(self) -> None:
        for shelf in self._shelves:
            shelf.close()

    def _hashed(self, id: str) -> int | None:
        for first, shelf in zip(self._first_of, self._shelves, strict=False):
            found = shelf.find(id)
            if found is not None:
                return first + found
        return None

    def _numbered(self, id: str) -> int | None:
        source, _, number = id.partition(":")
        within = int(number) - 1 if number.isascii() and number.isdecimal() and len(number) < 20 else -1
        for first, shelf in zip(self._first_of, self._shelves, strict=False):
            named = shelf.source.sha256.startswith(source) and len(source) >= _SOURCE_DIGITS
            if named and 0 <= within < len(shelf):
                return first + within
        return None

    def _load(self, number: int) -> Game | SkippedGame:
        if number in self.skipped:
            return self.skipped[number]
        shelf, within = self._place(number)
        return parse(shelf.raw(within), shelf.source)

    def _place(self, number: int) -> tuple[GameFile, int]:
        index = bisect_right(self._first_of, number) - 1
        return self._shelves[index], number - self._first_of[index]

    def _skip(self, number: int, game: SkippedGame) -> None:
        self.skipped[number] = game
        GAMES_SKIPPED.labels(game.defect.value).inc()
        logger.warning("skipped %s", game)


class _Joined(Sequence[int]):
    """The numbers of several shelves, concatenated."""

    def __init__(self, parts: Sequence[Sequence[int]], first_of: Sequence[int]) -> None:
        self._parts = parts
        self._first_of = first_of
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        part = bisect_right(self._ends, place)
        before = self._ends[part - 1] if part else 0
        return self._first_of[part] + self._parts[part][place - before]


def _shelf(location: str) -> GameFile:
    index = find_index(location)
    return IndexedFile(index) if index else SpooledFile(location)


def uci_moves(game: Game) -> list[str]:
    """The moves of a game in UCI, from its `start_fen` on."""
    return [move.uci() for _, _, move in game.replay()]
