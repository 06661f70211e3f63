"""Turns a FEN into the FEN that the engine searches. `rookery.fen` says which positions are possible.

If Black is to move, the engine gets the mirrored board, so that a position and its mirror image have the same
verdicts. Engines do not guarantee this by themselves, because their move ordering depends on the numbering of
the squares.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import chess

from rookery.errors import InvalidInput
from rookery.fen import read_fen
from rookery.trace import Evaluation, Move

DRAWN_CLOCK = 100
"""The half-move clock at which every engine scores a draw. The engine is given no larger one."""


class LegalMove(NamedTuple):
    """A legal move and, when it ends the game by the rules, its score: mate in 1, or 0 for a draw."""

    move: Move
    final_score: Evaluation | None


@dataclass(frozen=True, slots=True)
class JudgedPosition:
    """A position that can be judged. `key` is the engine's FEN: White to move, move number 1. `chess960` says
    that its castling rights exist only in Chess960. Castling is then king takes rook in UCI."""

    board: chess.Board
    key: str
    chess960: bool
    _legal_moves: dict[chess.Move, LegalMove] = field(default_factory=dict)

    def legal_move(self, move: chess.Move) -> LegalMove:
        """The legal `move` in UCI and SAN, and its score if it ends the game.

        The result is cached, because the answers of a group often repeat a move.
        """
        if (legal_move := self._legal_moves.get(move)) is None:
            after = self.board.copy(stack=False)
            san = after.san_and_push(move)
            legal_move = self._legal_moves[move] = LegalMove(
                Move(uci=move.uci(), san=san), _final_score(after, san)
            )
        return legal_move

    def to_engine(self, move: chess.Move) -> str:
        """`move` in UCI on the engine's board."""
        return (move if self.board.turn else _mirrored(move)).uci()

    def from_engine(self, uci: str) -> chess.Move:
        """The move on the caller's board for `uci` on the engine's board. Raises `ValueError` if it is not
        legal."""
        move = chess.Move.from_uci(uci)
        if not self.board.turn:
            move = _mirrored(move)
        if not self.board.is_legal(move):
            raise chess.IllegalMoveError(f"illegal move {move.uci()!r} in {self.board.fen()!r}")
        return move


@lru_cache(maxsize=16_384)
def read_position(fen: str) -> JudgedPosition:
    """The position of `fen`. It is Chess960 only if the castling rights are impossible in standard chess.
    Raises `InvalidInput` if `fen` is not a FEN, or the position is impossible or has no legal move."""
    board = read_fen(fen, chess960=True)
    if not any(board.generate_legal_moves()):
        end = "checkmate" if board.is_check() else "stalemate"
        raise InvalidInput(f"no legal move in {fen!r}: {end}")
    return JudgedPosition(board, _key(board, fen.split(maxsplit=1)[0]), board.chess960)


def _key(board: chess.Board, placement: str) -> str:
    """The engine's FEN. Its fields are mirrored as text, which costs less than a mirrored board."""
    placement = placement.replace("~", "")
    castling = board.castling_shredder_fen() if board.chess960 else board.castling_xfen()
    en_passant = "-" if board.ep_square is None else chess.SQUARE_NAMES[board.ep_square]
    if not board.turn:
        placement = "/".join(reversed(placement.swapcase().split("/")))
        castling = "".join(sorted(castling.swapcase(), key=str.islower))  # White's flags come first
        en_passant = en_passant.replace("3", "6")  # Black to move captures on the third rank
    return f"{placement} w {castling} {en_passant} {min(board.halfmove_clock, DRAWN_CLOCK)} 1"


def _final_score(after: chess.Board, san: str) -> Evaluation | None:
    if san.endswith("#"):
        return Evaluation(mate=1)
    over = after.is_insufficient_material() or after.is_seventyfive_moves()
    return Evaluation(cp=0) if over or not any(after.generate_legal_moves()) else None


def _mirrored(move: chess.Move) -> chess.Move:
    return chess.Move(
        chess.square_mirror(move.from_square), chess.square_mirror(move.to_square), move.promotion
    )
