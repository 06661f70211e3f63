"""A game as a record that can be replayed in microseconds, and the phases of its positions.

Games take two bytes per move, so that all games of a sample-sized file fit in memory.
"""

from array import array
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import chess

from rookery.pgn.rawgame import Defect
from rookery.trace import Phase, Position, Split

OPENING_PLIES = 24
"""A position belongs to the opening only if fewer half-moves than this come before it."""

ENDGAME_PIECES = 6
"""The endgame begins with this many pieces of both sides, not counting kings and pawns.

Source: `majorsAndMinors <= 6` of Lichess's game divider (scalachess, `Divider.scala`).
"""

FIRST_HELDOUT = -(-(19 << 64) // 20)
"""The smallest held-out game id, as a number."""

PHASES = (Phase.OPENING, Phase.MIDDLEGAME, Phase.ENDGAME)
OVER = 255
"""The code, instead of a phase, of positions after the rules had ended the game."""

_REPETITIONS = 5
FIVEFOLD_PLIES = 16
"""A position cannot have occurred five times after fewer half-moves without a capture or pawn move."""


@dataclass(frozen=True, slots=True)
class SkippedGame:
    """A game that was skipped, and why. `offset` counts uncompressed bytes of the file."""

    path: str
    number: int
    defect: Defect
    detail: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.path} game {self.number} at byte {self.offset}: {self.defect}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Game:
    """A game without errors: `moves` has 16 bits per move, `phases` one byte per ply.

    Ply i is the position before move i, so the position after the last move has no ply. In Chess960,
    castling is encoded as the king taking its own rook.
    """

    source: str
    number: int
    id: str
    start_fen: str
    moves: "array[int]"
    phases: bytes
    white_elo: int | None = None
    black_elo: int | None = None
    chess960: bool = False

    def plies(self, phase: Phase) -> list[int]:
        """The plies of a phase, without terminal positions."""
        code = PHASES.index(phase)
        return [ply for ply, value in enumerate(self.phases) if value == code]

    def replay(self) -> Iterator[tuple[int, chess.Board, chess.Move]]:
        """Yields each ply, its board and the move played. The board changes in place: copy it to keep it."""
        board = self._start()
        for ply, code in enumerate(self.moves):
            move = unpack_move(code)
            yield ply, board, move
            board.push(move)

    def uci_moves(self) -> list[str]:
        return [move.uci() for _, _, move in self.replay()]

    def fields_with(self, *, pgn: str) -> dict[str, Any]:
        """The game as the service shows it, with its text and its moves in UCI."""
        names = ("id", "source", "number", "start_fen", "white_elo", "black_elo")
        values = {name: getattr(self, name) for name in names}
        return values | {"moves": self.uci_moves(), "pgn": pgn}

    def board(self, ply: int) -> chess.Board:
        """The board before move `ply`, with the moves so far on its stack."""
        board = self._start()
        for code in self.moves[:ply]:
            board.push(unpack_move(code))
        return board

    def position(self, ply: int, *, fen: str = "") -> Position:
        """The position before move `ply`, which must be one of `plies`. Its `fen` may be known already."""
        return Position(
            id=f"{self.source}:{self.number}:{ply}",
            fen=fen or self.board(ply).fen(),
            ply=ply,
            phase=PHASES[self.phases[ply]],
            game_id=self.id,
            last_moves=tuple(map(_uci_of, self.moves[:ply])),
            white_elo=self.white_elo,
            black_elo=self.black_elo,
        )

    def _start(self) -> chess.Board:
        return chess.Board(self.start_fen, chess960=self.chess960)


class SoundGame:
    """A sound game. Its positions are computed by replaying the moves."""

    def __init__(self, game: Game) -> None:
        self.game = game

    def fen(self, ply: int) -> str:
        """The FEN before move `ply`, as python-chess writes it."""
        return self.game.board(ply).fen()

    def choices(self, ply: int) -> int:
        return chess.Board(self.fen(ply), chess960=self.game.chess960).legal_moves.count()


def in_split(game_id: str, split: Split) -> bool:
    """Whether a game belongs to a split. Games whose id is in the last twentieth of all ids are held out.

    The id is a hash of the moves, so copies of a game in different files belong to the same split.

    >>> in_split("f333333333333334", "heldout"), in_split("f333333333333333", "heldout")
    (True, False)
    """
    heldout = int(game_id, 16) >= FIRST_HELDOUT
    return split == "all" or heldout == (split == "heldout")


def phase_of(board: chess.Board) -> Phase:
    """The phase of a position, by the pieces left and the move number.

    >>> phase_of(chess.Board()).value, phase_of(chess.Board("4k3/8/8/8/8/8/4P3/R3K3 w Q - 0 9")).value
    ('opening', 'endgame')
    """
    pieces = (board.knights | board.bishops | board.rooks | board.queens).bit_count()
    if pieces <= ENDGAME_PIECES:
        return Phase.ENDGAME
    return Phase.OPENING if board.ply() < OPENING_PLIES else Phase.MIDDLEGAME


class EndDetector:
    """Decides for each position of a game, in order, whether the rules had already ended the game."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def is_over(self, board: chess.Board) -> bool:
        """Whether the game had ended. A next move exists, so it is no mate or stalemate."""
        if board.halfmove_clock == 0:  # no earlier position can come again
            self._counts.clear()
        key = board._transposition_key()  # `is_fivefold_repetition` would take back the moves at each ply
        self._counts[key] += 1
        if self._counts[key] >= _REPETITIONS or board.is_seventyfive_moves():
            return True
        return board.is_insufficient_material()


def pack_move(move: chess.Move) -> int:
    """A move in 16 bits."""
    return move.from_square | move.to_square << 6 | (move.promotion or 0) << 12


def unpack_move(code: int) -> chess.Move:
    """The move of a code from `pack_move`."""
    return chess.Move(code & 63, code >> 6 & 63, code >> 12 or None)


@cache
def _uci_of(code: int) -> str:
    """The UCI move of a code. The cache stays small: there are a few thousand moves in chess."""
    return unpack_move(code).uci()
