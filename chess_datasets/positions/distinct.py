"""Recognises repeated positions, mirrored or not.

Two positions count as the same if their first four FEN fields are equal, seen from the side to move. A
position is therefore the same as its mirror image with swapped colours. Keys are 64-bit hashes. Among n
positions, two different ones share a key with a probability of n^2 / 2^65, which is one in a million for five
million positions.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from rookery.trace import Position

MAX_REPEATED = 2000
"""After more repeated positions than this in a row, there are hardly any new ones."""

_SIDES = str.maketrans("36", "63")


def canonical_fen(fen: str) -> str:
    """The first four fields, seen from the side to move, of a FEN as python-chess writes it.

    >>> canonical_fen("4k3/4p3/8/8/8/8/8/4K3 b - - 0 1")
    '4k3/8/8/8/8/8/4P3/4K3 w - -'
    """
    placement, turn, castling, en_passant = fen.split(" ")[:4]
    if turn == "b":
        placement = "/".join(reversed(placement.swapcase().split("/")))
        castling, en_passant = castling.swapcase(), en_passant.translate(_SIDES)
    return f"{placement} w {''.join(sorted(castling))} {en_passant}"


def position_key(fen: str) -> int:
    """The 64-bit key of a position."""
    return int.from_bytes(hashlib.blake2b(canonical_fen(fen).encode(), digest_size=8).digest(), "little")


def distinct_positions(positions: Iterable[Position]) -> Iterator[Position]:
    """Yields the positions that did not occur before, until there are hardly any new ones."""
    fens: set[str] = set()
    repeated = 0
    for position in positions:
        fen = canonical_fen(position.fen)
        if fen not in fens:
            fens.add(fen)
            repeated = 0
            yield position
        elif (repeated := repeated + 1) > MAX_REPEATED:
            return


class PositionKeys:
    """A set of keys, at eight bytes each. Two sets with the same keys compare equal."""

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._keys: NDArray[np.uint64] = np.unique(np.array(array("Q", keys), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        if not len(self._keys):
            return False
        place = int(np.searchsorted(self._keys, np.uint64(key)))
        return place < len(self._keys) and int(self._keys[place]) == key
