"""Recognises repeated positions, mirrored or not, and the positions of evaluations.

Two positions count as the same if their first four FEN fields are equal, seen from the side to move. A
position is therefore the same as its mirror image with swapped colours. Keys are 64-bit hashes. Among n
positions, two different ones share a key with a probability of n^2 / 2^65, which is one in a million for five
million positions.
"""

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from rookery.errors import InvalidInput
from rookery.pgn.rawgame import decode
from rookery.trace import Position
from services.data.pgn.pieces import pieces_of
from services.data.store.files import identify, split_lines

MAX_REPEATED = 2000
"""After more repeated positions than this in a row, there are hardly any new ones."""

_SIDES = str.maketrans("36", "63")
# A FEN or the first four fields of an EPD, anywhere in a line, and the moves of a puzzle after it.
_FEN = re.compile(
    r"([1-8PNBRQKpnbrqk]{1,8}(?:/[1-8PNBRQKpnbrqk]{1,8}){7} [wb] (?:-|[KQkqA-Ha-h]{1,4}) (?:-|[a-h][36]))"
    r"(?: \d+ \d+)?(?:,((?:[a-h][1-8]){2}[qrbn]?(?: (?:[a-h][1-8]){2}[qrbn]?)*))?"
)


def canonical_fen(fen: str) -> str:
    """The first four fields, seen from the side to move, of a FEN as python-chess writes it.

    >>> canonical_fen("4k3/4p3/8/8/8/8/8/4K3 b - - 0 1")
    '4k3/8/8/8/8/8/4P3/4K3 w - -'
    """
    placement, turn, castling, en_passant = fen.split(" ")[:4]
    if turn == "w":
        return f"{placement} w {castling} {en_passant}"
    placement = "/".join(reversed(placement.swapcase().split("/")))
    return f"{placement} w {''.join(sorted(castling.swapcase()))} {en_passant.translate(_SIDES)}"


def position_key(fen: str) -> int:
    """The 64-bit key of a position."""
    return int.from_bytes(hashlib.blake2b(canonical_fen(fen).encode(), digest_size=8).digest(), "little")


def distinct(positions: Iterable[Position]) -> Iterator[Position]:
    """Yields the positions that did not occur before, until there are hardly any new ones."""
    seen: set[str] = set()
    repeated = 0
    for position in positions:
        fen = canonical_fen(position.fen)
        if fen not in seen:
            seen.add(fen)
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


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """A file with the positions of an evaluation, which are kept out of training data."""

    path: str
    sha256: str
    positions: int

    @property
    def summary(self) -> dict[str, Any]:
        return {"path": self.path.rpartition("/")[2], "sha256": self.sha256, "positions": self.positions}


def read_evaluation_files(locations: Sequence[str]) -> tuple[PositionKeys, list[EvaluationFile]]:
    """Finds every position in some text files: FEN, EPD, JSON lines, PGN tags, puzzles with their moves.

    Raises:
        SetupError: a file cannot be read.
        InvalidInput: a file contains no position.
    """
    keys = array("Q")
    exams = []
    for location in locations:
        found = array("Q", (position_key(fen) for line in _lines(location) for fen in _positions(line)))
        if not found:
            raise InvalidInput(f"{location!r} holds no position: neither FEN nor EPD was found in it")
        exams.append(EvaluationFile(location, identify(location).sha256, len(found)))
        keys.extend(found)
    return PositionKeys(keys), exams


def _positions(line: str) -> Iterator[str]:
    """The positions in a line. Invalid positions and illegal moves are ignored."""
    for fen, moves in _FEN.findall(line):
        with suppress(ValueError):
            board = chess.Board(f"{fen} 0 1")
            yield board.fen()
            for uci in moves.split():
                board.push_uci(uci)
                yield board.fen()


def _lines(location: str) -> Iterator[str]:
    blocks = chain.from_iterable(piece.blocks() for piece in pieces_of(location))
    return map(decode, split_lines(blocks))
