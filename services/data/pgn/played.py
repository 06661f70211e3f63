"""Games with legal moves, and queries about their positions."""

from typing import Protocol

from services.data.pgn.games import Game


class Played(Protocol):
    """A sound game that can compute its positions."""

    @property
    def game(self) -> Game: ...

    def fen(self, ply: int) -> str:
        """The FEN before move `ply`, as python-chess writes it."""

    def choices(self, ply: int) -> int:
        """The number of legal moves before move `ply`."""


class FromMoves:
    """Computes positions by replaying the moves."""

    def __init__(self, game: Game) -> None:
        self.game = game

    def fen(self, ply: int) -> str:
        return self.game.board(ply).fen()

    def choices(self, ply: int) -> int:
        return self.game.board(ply).legal_moves.count()
