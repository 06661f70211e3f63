"""A game whose moves are known, and what can be asked about its plies."""

from typing import Protocol

from services.data.pgn.games import Game


class Played(Protocol):
    """A sound game that can tell its positions."""

    @property
    def game(self) -> Game: ...

    def fen(self, ply: int) -> str:
        """The position before move `ply`, spelled as python-chess spells it."""

    def choices(self, ply: int) -> int:
        """How many legal moves there are in it."""


class FromMoves:
    """By playing the moves over."""

    def __init__(self, game: Game) -> None:
        self.game = game

    def fen(self, ply: int) -> str:
        return self.game.board(ply).fen()

    def choices(self, ply: int) -> int:
        return self.game.board(ply).legal_moves.count()
