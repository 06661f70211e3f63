"""Reads games from the arrays that the native parser fills for many games at once.

Work on all positions is done on whole arrays. Rare cases (bare kings, repetitions, en passant) are decided by
python-chess, one position at a time.
"""

from array import array
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import compress, product
from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from rookery.trace import Phase
from services.data.pgn.games import (
    ENDGAME_PIECES,
    FIVEFOLD_PLIES,
    OPENING_PLIES,
    OVER,
    PHASES,
    Game,
    Played,
    is_over,
)

_PIECES = b".PNBRQKpnbrqk"
_SYMBOLS = bytes.maketrans(bytes(range(len(_PIECES))), _PIECES)
# Each square in a byte, so that eight are counted at once: in the low half what is neither king nor pawn, in
# the high half what can always mate, with whatever the opponent has.
_WEIGHTS = bytes((chr(s) in "NBRQnbrq") + 16 * (chr(s) in "PRQprq") for s in _PIECES).ljust(256, b"\0")
# Makes one number of a placement; different ones that share it only cost a closer look.
_FACTORS = np.arange(1, 17, 2, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
_LOW_HALVES = np.uint64(0x0F0F0F0F0F0F0F0F)
_CASTLING = {bytes(held): "".join(compress("KQkq", held)) or "-" for held in product((False, True), repeat=4)}
_RANKS = range(56, -1, -8)
_RUNS = tuple(("." * length, str(length)) for length in range(8, 0, -1))

# More than these and a game must be looked at move by move: 75 moves, five repetitions.
_QUIET_PLIES = 150
_REPETITIONS = 4

_OPENING, _MIDDLEGAME, _ENDGAME = map(PHASES.index, (Phase.OPENING, Phase.MIDDLEGAME, Phase.ENDGAME))

MakeGame = Callable[..., Game]
"""A game but for its moves and phases."""


class Chunk:
    """Games parsed together."""

    def __init__(self, parsed: Any) -> None:
        self._valid = parsed.valid
        self._first_move = parsed.move_offsets.tolist()
        self._first_position = parsed.position_offsets.tolist()
        self._boards = parsed.boards.reshape(-1, 64)
        self._squares = parsed.boards.tobytes()
        self._castling = parsed.castling.tobytes()
        self._en_passant = parsed.en_passant
        self._clocks = parsed.halfmove_clock
        promotions = np.maximum(parsed.promotions, 0).astype(np.uint16)
        moves = parsed.from_squares | parsed.to_squares.astype(np.uint16) << 6 | promotions << 12
        self._moves = moves.tobytes()
        phases, self._bare = self._divide()
        self._phases = phases.tobytes()
        self._placements = (self._boards.view(np.uint64) * _FACTORS).sum(axis=1)
        starts = self._first_position[:-1]
        self._quietest = np.maximum.reduceat(self._clocks, starts).tolist() if starts else []
        self._has_bare = np.logical_or.reduceat(self._bare, starts).tolist() if starts else []

    @property
    def games(self) -> int:
        """How many there are, sound or not."""
        return len(self._valid)

    def is_sound(self, number: int) -> bool:
        """Whether every move of a game is legal."""
        return bool(self._valid[number]) and self._first_move[number] < self._first_move[number + 1]

    def played(self, number: int, make: MakeGame) -> Played:
        """A sound game."""
        first, last = self._first_position[number : number + 2]
        game = make(
            moves=array("H", self._moves[2 * self._first_move[number] : 2 * self._first_move[number + 1]]),
            phases=self._phases[first : last - 1],
        )
        over = self._over(number, game, first, last - 1)
        if over:
            phases = bytearray(game.phases)
            for ply in over:
                phases[ply] = OVER
            game = make(moves=game.moves, phases=bytes(phases))
        return _InChunk(game, self, first)

    def _divide(self) -> "tuple[NDArray[np.uint8], NDArray[np.bool_]]":
        """The phase of every position, and whether it lacks what can always mate."""
        lengths = np.diff(self._first_position)
        plies = np.arange(len(self._boards)) - np.repeat(self._first_position[:-1], lengths)
        phases = np.where(plies < OPENING_PLIES, _OPENING, _MIDDLEGAME).astype(np.uint8)
        weights = np.frombuffer(self._squares.translate(_WEIGHTS), np.uint64).reshape(-1, 8)
        ranks = weights.sum(axis=1)
        pieces = (ranks & _LOW_HALVES).view(np.uint8).reshape(-1, 8).sum(axis=1)
        phases[pieces <= ENDGAME_PIECES] = _ENDGAME
        return phases, (ranks & ~_LOW_HALVES) == 0

    def _over(self, number: int, game: Game, first: int, last: int) -> list[int]:
        """Plies at which the rules had ended the game."""
        quietest = self._quietest[number]
        if quietest >= _QUIET_PLIES or (quietest >= FIVEFOLD_PLIES and self._repeats(first, last)):
            return [ply for ply, board, _ in game.replay() if is_over(board)]
        if not self._has_bare[number]:
            return []
        bare = np.flatnonzero(self._bare[first:last]).tolist()
        return [ply for ply in bare if chess.Board(self.fen(first + ply, ply)).is_insufficient_material()]

    def _repeats(self, first: int, last: int) -> bool:
        """Whether some placement comes so often that a position may have come five times."""
        return max(Counter(self._placements[first:last].tolist()).values()) >= _REPETITIONS

    def fen(self, position: int, ply: int) -> str:
        """A position as python-chess spells it."""
        squares = self._squares[64 * position : 64 * position + 64].translate(_SYMBOLS).decode()
        placement = "/".join([_rank(squares[rank : rank + 8]) for rank in _RANKS])
        castling = _CASTLING[self._castling[4 * position : 4 * position + 4]]
        fen = f"{placement} {'bw'[ply % 2 == 0]} {castling}"
        rest = f"{int(self._clocks[position])} {ply // 2 + 1}"
        file = int(self._en_passant[position])
        if file < 0 or not _pawn_beside(squares, file, white=ply % 2 == 0):
            return f"{fen} - {rest}"
        target = f"{chess.FILE_NAMES[file]}{'6' if ply % 2 == 0 else '3'}"
        return chess.Board(f"{fen} {target} {rest}").fen()


class _InChunk:
    """A game of a chunk."""

    def __init__(self, game: Game, chunk: Chunk, first: int) -> None:
        self.game = game
        self._chunk = chunk
        self._first = first

    def fen(self, ply: int) -> str:
        return self._chunk.fen(self._first + ply, ply)

    def choices(self, ply: int) -> int:
        return chess.Board(self.fen(ply)).legal_moves.count()


@lru_cache(1 << 16)
def _rank(squares: str) -> str:
    """A rank as a FEN has it."""
    for run, length in _RUNS:
        squares = squares.replace(run, length)
    return squares


def _pawn_beside(squares: str, file: int, *, white: bool) -> bool:
    """Whether a pawn of the mover stands beside the one that has just come by two squares."""
    start = 32 if white else 24
    beside = squares[start + max(0, file - 1) : start + min(8, file + 2)]
    return ("P" if white else "p") in beside
