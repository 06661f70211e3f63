"""Players without a model or an engine: random, first legal, and one that plays at random now and then."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import chess

from rookery.trace import Outcome
from services.arena.players.player import Player, Reply


@dataclass(frozen=True)
class RandomPlayer:
    """Plays any legal move with the same probability."""

    name: str = "random"

    def describe(self) -> Mapping[str, object]:
        return {"kind": "random"}

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        return Reply(random_move(board, seed=seed), Outcome.LEGAL)

    async def close(self) -> None: ...


@dataclass(frozen=True)
class FirstLegalPlayer:
    """Plays the legal move that comes first in the alphabetical order of UCI."""

    name: str = "first-legal"

    def describe(self) -> Mapping[str, object]:
        return {"kind": "first-legal"}

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        del seed
        return Reply(min(board.legal_moves, key=chess.Move.uci), Outcome.LEGAL)

    async def close(self) -> None: ...


@dataclass(frozen=True)
class EpsilonRandomPlayer:
    """Plays at random with probability `share`, else as `player` does."""

    player: Player
    share: float
    name: str

    def describe(self) -> Mapping[str, object]:
        return {"kind": "epsilon-random", "share": self.share, "player": dict(self.player.describe())}

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        # The digits that decide are not those that `random_move` draws from the same seed.
        if random.Random(f"epsilon:{seed}").random() < self.share:
            return Reply(random_move(board, seed=seed), Outcome.LEGAL)
        return await self.player.play(board, seed=seed)

    async def close(self) -> None:
        await self.player.close()


def random_move(board: chess.Board, *, seed: int) -> chess.Move:
    """A legal move, drawn uniformly. The same position and seed give the same move.

    >>> random_move(chess.Board(), seed=1).uci()
    'b2b3'
    """
    return random.Random(seed).choice(sorted(board.legal_moves, key=chess.Move.uci))
