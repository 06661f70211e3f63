"""A FEN, validated and turned into the question an engine may be asked.

Stockfish is never fed a position it could choke on. It is also never shown Black to move: the board
is mirrored first, so that a position and its mirror image are one question with one answer, which no
engine promises by itself (its move ordering depends on the numbering of the squares).
"""

from dataclasses import dataclass, field
from functools import lru_cache

import chess

from rookery.errors import InvalidInput
from rookery.trace import Evaluation, Move

MAX_FEN_CHARS = 128
"""The longest legal FEN has about 90."""

DRAWN_CLOCK = 100
"""Half-moves without progress after which every engine scores a draw; larger clocks say no more."""


@dataclass(frozen=True, slots=True)
class Play:
    """A legal move and, when it ends the game by the rules, its score: mate in 1, or 0 for a draw."""

    move: Move
    settled: Evaluation | None


@dataclass(frozen=True, slots=True)
class Position:
    """A board that may be scored. `key` is its engine FEN: White to move, no move number."""

    board: chess.Board
    key: str
    _plays: dict[chess.Move, Play] = field(default_factory=dict)

    def play(self, move: chess.Move) -> Play:
        """What `move` is and whether it ends the game. Asked again and again for the moves of a group.

        Raises:
            chess.IllegalMoveError: it is not legal here.
        """
        if (play := self._plays.get(move)) is None:
            if not self.board.is_legal(move):
                raise chess.IllegalMoveError(f"illegal move {move.uci()!r} in {self.board.fen()!r}")
            named = Move(uci=move.uci(), san=self.board.san(move))
            play = self._plays[move] = Play(named, _settled(self.board, move))
        return play

    def to_engine(self, move: chess.Move) -> str:
        """`move` in UCI on the engine's board."""
        return (move if self.board.turn else _mirrored(move)).uci()

    def from_engine(self, uci: str) -> chess.Move:
        """The caller's move for the engine's `uci`."""
        move = chess.Move.from_uci(uci)
        return move if self.board.turn else _mirrored(move)


@lru_cache(maxsize=4096)
def read_position(fen: str) -> Position:
    """The position of `fen`.

    Raises:
        InvalidInput: no FEN, an impossible position, or one without legal moves.
    """
    board = _board(fen)
    if not any(board.generate_legal_moves()):
        end = "checkmate" if board.is_check() else "stalemate"
        raise InvalidInput(f"no legal move in {fen!r}: {end}")
    seen = board if board.turn else board.mirror()
    clock = min(board.halfmove_clock, DRAWN_CLOCK)
    return Position(board, f"{' '.join(seen.fen().split()[:4])} {clock} 1")


def _board(fen: str) -> chess.Board:
    if len(fen) > MAX_FEN_CHARS:
        raise InvalidInput(f"no FEN is {len(fen)} characters long: {fen[:MAX_FEN_CHARS]!r}...")
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise InvalidInput(f"not a FEN: {fen!r}: {error}") from error
    if status := board.status():
        flaws = ", ".join(flag.name.lower().replace("_", " ") for flag in status if flag.name)
        raise InvalidInput(f"impossible position {fen!r}: {flaws}")
    return board


def _settled(board: chess.Board, move: chess.Move) -> Evaluation | None:
    after = board.copy(stack=False)
    after.push(move)
    end = after.outcome()
    if end is None:
        return None
    return Evaluation(cp=0) if end.winner is None else Evaluation(mate=1)


def _mirrored(move: chess.Move) -> chess.Move:
    return chess.Move(
        chess.square_mirror(move.from_square), chess.square_mirror(move.to_square), move.promotion
    )
