"""Hashes of games that decide which samples they are in. The moves are not read for it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TICKET_BYTES = 256
"""Only this much of a game, the tags that identify it, decides which samples it is in."""

# Odd factors, one for each 64-bit word of what a ticket hashes, and the finalizer of SplitMix64.
_FACTORS = np.arange(1, TICKET_BYTES // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
_MIXES = (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))


def tickets_of(text: bytes, starts: Sequence[int], ends: Sequence[int]) -> NDArray[np.uint64]:
    """A 64-bit hash of each game from `starts` to `ends` in a text, used to draw samples.

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
