"""Mates in one, for the side to move and for the other side if it were its turn."""

from collections.abc import Iterator
from dataclasses import dataclass

import chess

from services.data.annotate.exchange import passed_turn
from services.data.annotate.facts.fact import Fact


@dataclass(frozen=True, slots=True)
class MateNow(Fact):
    """The side to move can mate at once."""

    side: chess.Color
    moves: tuple[chess.Move, ...]

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class MateThreat(Fact):
    """`side`, which is not to move, would mate at once if the other side passed."""

    side: chess.Color
    moves: tuple[chess.Move, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return tuple(square for move in self.moves for square in (move.from_square, move.to_square))

    @property
    def favours(self) -> chess.Color | None:
        return self.side


def mates(board: chess.Board) -> Iterator[Fact]:
    """The mates in one of both sides."""
    if now := mating_moves(board):
        yield MateNow(board.turn, now)
    passed = passed_turn(board)
    if passed and (then := mating_moves(passed)):
        yield MateThreat(passed.turn, then)


def mating_moves(board: chess.Board) -> tuple[chess.Move, ...]:
    """Every move that mates."""
    checks = [move for move in board.legal_moves if board.gives_check(move)]
    return tuple(move for move in checks if _mates(board, move))


def _mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    try:
        return not any(board.generate_legal_moves())
    finally:
        board.pop()
