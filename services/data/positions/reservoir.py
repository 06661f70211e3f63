"""Keeps the smallest of many records, without duplicates. Memory depends only on how many are wanted.

The rank of a record is a hash of its content, so records of equal rank are the same thing. Keeping the
`size` smallest ranks of a stream draws `size` distinct things, each with the same probability, whatever
their order and however often each occurs (a bottom-k sketch). Texts are kept in a temporary file. Memory is
32 bytes for each wanted record, or less if there are fewer records.
"""

import os
import tempfile

import numpy as np
from numpy.typing import NDArray

_NO_LIMIT = 1 << 64
_FIRST_ROOM = 1 << 12
_SIZE_BYTES = 4
_READ_BYTES = 512  # usually one read: a position with its game is shorter


class Reservoir:
    """Keeps the `size` smallest ranks; of equal ranks, the first one added."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._limit = _NO_LIMIT if size else 0
        room = min(2 * size, _FIRST_ROOM)
        self._ranks = np.empty(room, np.uint64)
        self._places = np.empty(room, np.uint64)
        self._held = 0
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it

    def wants(self, rank: int) -> bool:
        """Whether a record of this rank might be kept."""
        return rank < self._limit

    def add(self, rank: int, text: bytes) -> None:
        """Adds a record, if it is wanted."""
        if not self.wants(rank):
            return
        self._ranks[self._held] = rank
        self._places[self._held] = self._spool.tell()
        self._spool.write(len(text).to_bytes(_SIZE_BYTES, "little") + text)
        self._held += 1
        if self._held == len(self._ranks):
            self._prune()
            self._make_room()

    def settle(self) -> NDArray[np.uint64]:
        """The ranks kept, in order. Nothing may be added afterwards."""
        self._prune()
        self._spool.flush()
        return self._ranks[: self._held]

    def text(self, index: int) -> bytes:
        """The record of a rank, by its index in the result of `settle`."""
        place = int(self._places[index])
        start = os.pread(self._spool.fileno(), _READ_BYTES, place)
        end = _SIZE_BYTES + int.from_bytes(start[:_SIZE_BYTES], "little")
        rest = (
            os.pread(self._spool.fileno(), end - len(start), place + len(start)) if end > len(start) else b""
        )
        return (start + rest)[_SIZE_BYTES:end]

    def close(self) -> None:
        self._spool.close()

    def _make_room(self) -> None:
        """Doubles the arrays, up to twice `size`, if more than half of them is in use after pruning."""
        room = len(self._ranks)
        if 2 * self._held > room and room < 2 * self._size:
            room = min(2 * room, 2 * self._size)
            self._ranks, self._places = np.resize(self._ranks, room), np.resize(self._places, room)

    def _prune(self) -> None:
        """Keeps the smallest ranks. `unique` sorts, and returns where each rank occurs first."""
        ranks, first = np.unique(self._ranks[: self._held], return_index=True)
        self._held = min(self._size, len(ranks))
        self._ranks[: self._held] = ranks[: self._held]
        self._places[: self._held] = self._places[first[: self._held]]
        if 0 < self._held == self._size:
            self._limit = int(ranks[self._held - 1]) + 1
