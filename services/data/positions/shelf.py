"""Gives access to the games of one file by number, with its index or from a copy of its text."""

import os
import re
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from services.data.pgn.files import Fingerprint, Source
from services.data.pgn.games import Split, in_split
from services.data.pgn.index import Index
from services.data.pgn.rawgame import RawGame
from services.data.pgn.reader import read_raw_games

_GAME_ID = re.compile(r"[0-9a-f]{16}")


class Shelf(Protocol):
    """The games of one file, numbered from 0. Thread-safe."""

    @property
    def source(self) -> Source: ...

    @property
    def broken(self) -> Sequence[RawGame]:
        """The games known at the start to have a defect, from their bytes alone."""

    def __len__(self) -> int: ...

    def members(self, split: Split) -> Sequence[int]:
        """The numbers of the games of a split."""

    def raw(self, number: int) -> RawGame:
        """The game with a number."""

    def find(self, id: str) -> int | None:
        """The number of a game with that id, or None."""

    def close(self) -> None: ...


class Indexed:
    """A file with an index. Only the requested games are read."""

    def __init__(self, index: Index) -> None:
        self.source = index.about.source
        self.broken: Sequence[RawGame] = ()
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def members(self, split: Split) -> Sequence[int]:
        return self._index.members(split)

    def raw(self, number: int) -> RawGame:
        return self._index.raw(number)

    def find(self, id: str) -> int | None:
        return self._index.find(id) if _GAME_ID.fullmatch(id) else None

    def close(self) -> None:
        self._index.close()


class Copied:
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
            self._add(raw.judged())
        self.source = fingerprint.source
        self._spool.flush()
        self._by_id = array("L", sorted(range(len(self)), key=self._ids.__getitem__))

    def __len__(self) -> int:
        return len(self._offsets)

    def members(self, split: Split) -> Sequence[int]:
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
