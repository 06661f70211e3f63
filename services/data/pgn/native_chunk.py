"""Makes games of the arrays that the native parser fills for many games at once.

Work on all positions is done on whole arrays. Rare cases (bare kings, repetitions, en passant) are left
to python-chess, position by position.
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
from services.data.pgn.games import ENDGAME_PIECES, FIVEFOLD_PLIES, OPENING_PLIES, OVER, PHASES, Game, is_over
from services.data.pgn.played import Played

_PIECES = b".PNBRQKpnbrqk"
_SYMBOLS = bytes.maketrans(bytes(range(len(_PIECES))), _PIECES)
# One byte per square, so that eight squares are counted at once. The low half counts pieces other than kings
# and pawns; the high half counts pieces that can always mate, whatever the opponent has.
_WEIGHTS = bytes((chr(s) in "NBRQnbrq") + 16 * (chr(s) in "PRQprq") for s in _PIECES).ljust(256, b"\0")
# Hashes a placement to one number. A collision only causes an unneeded check.
_FACTORS = np.arange(1, 17, 2, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
_LOW_HALVES = np.uint64(0x0F0F0F0F0F0F0F0F)
_CASTLING = {bytes(held): "".join(compress("KQkq", held)) or "-" for held in product((False, True), repeat=4)}
_RANKS = range(56, -1, -8)
_RUNS = tuple(("." * length, str(length)) for length in range(8, 0, -1))

# From these numbers on, a game is checked move by move: for 75 quiet moves and for five repetitions.
_QUIET_PLIES = 150
_REPETITIONS = 4

_OPENING, _MIDDLEGAME, _ENDGAME = map(PHASES.index, (Phase.OPENING, Phase.MIDDLEGAME, Phase.ENDGAME))

MakeGame = Callable[..., Game]
"""Makes a game from its moves and phases."""


class Chunk:
    """Games that were parsed together."""

    def __init__(self, parsed: Any) -> None:
        self._valid = parsed.valid
        self._first_move = parsed.move_offsets.tolist()
        self._first_position = parsed.position_offsets.tolist()
        self._boards = parsed.boards.reshape(-1, 64)
        self._squares = parsed.boards.tobytes().translate(_SYMBOLS).decode()
        self._castling = parsed.castling.tobytes()
        self._en_passant = parsed.en_passant
        self._clocks = parsed.halfmove_clock
        promotions = np.maximum(parsed.promotions, 0).astype(np.uint16)
        self._moves = parsed.from_squares | parsed.to_squares.astype(np.uint16) << 6 | promotions << 12
        self._phases, self._bare = self._divide()
        self._placements = (self._boards.view(np.uint64) * _FACTORS).sum(axis=1)
        starts = self._first_position[:-1]
        self._quietest = np.maximum.reduceat(self._clocks, starts).tolist() if starts else []
        self._has_bare = np.logical_or.reduceat(self._bare, starts).tolist() if starts else []

    @property
    def games(self) -> int:
        """The number of games, sound or not."""
        return len(self._valid)

    def is_sound(self, number: int) -> bool:
        """Whether a game has moves and all of them are legal."""
        return bool(self._valid[number]) and self._first_move[number] < self._first_move[number + 1]

    def played(self, number: int, make: MakeGame) -> Played:
        """The sound game with this number."""
        first, last = self._first_position[number : number + 2]
        game = make(
            moves=array("H", self._moves[self._first_move[number] : self._first_move[number + 1]].tobytes()),
            phases=self._phases[first : last - 1].tobytes(),
        )
        over = self._over(number, game, first, last - 1)
        if over:
            phases = bytearray(game.phases)
            for ply in over:
                phases[ply] = OVER
            game = make(moves=game.moves, phases=bytes(phases))
        return _InChunk(game, self, first)

    def _divide(self) -> "tuple[NDArray[np.uint8], NDArray[np.bool_]]":
        """The phase of every position, and whether it has no piece that can always mate."""
        lengths = np.diff(self._first_position)
        plies = np.arange(len(self._boards)) - np.repeat(self._first_position[:-1], lengths)
        phases = np.where(plies < OPENING_PLIES, _OPENING, _MIDDLEGAME).astype(np.uint8)
        weights = np.frombuffer(self._boards.tobytes().translate(_WEIGHTS), np.uint64).reshape(-1, 8)
        ranks = weights.sum(axis=1)
        pieces = (ranks & _LOW_HALVES).view(np.uint8).reshape(-1, 8).sum(axis=1)
        phases[pieces <= ENDGAME_PIECES] = _ENDGAME
        return phases, (ranks & ~_LOW_HALVES) == 0

    def _over(self, number: int, game: Game, first: int, last: int) -> list[int]:
        """The plies at which the rules had ended the game."""
        quietest = self._quietest[number]
        if quietest >= _QUIET_PLIES or (quietest >= FIVEFOLD_PLIES and self._repeats(first, last)):
            return [ply for ply, board, _ in game.replay() if is_over(board)]
        if not self._has_bare[number]:
            return []
        bare = np.flatnonzero(self._bare[first:last]).tolist()
        return [ply for ply in bare if chess.Board(self.fen(first + ply, ply)).is_insufficient_material()]

    def _repeats(self, first: int, last: int) -> bool:
        """Whether some placement occurs often enough that a position may have occurred five times."""
        return max(Counter(self._placements[first:last].tolist()).values()) >= _REPETITIONS

    def fen(self, position: int, ply: int) -> str:
        """The FEN of a position, exactly as python-chess writes it."""
        squares = self._squares[64 * position : 64 * position + 64]
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
    """A rank in FEN notation."""
    for run, length in _RUNS:
        squares = squares.replace(run, length)
    return squares


def _pawn_beside(squares: str, file: int, *, white: bool) -> bool:
    """Whether a pawn of the side to move is next to the pawn that has just advanced two squares."""
    start = 32 if white else 24
    beside = squares[start + max(0, file - 1) : start + min(8, file + 2)]
    return ("P" if white else "p") in beside
