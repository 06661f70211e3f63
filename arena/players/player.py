"""The interface of players, and the players that need neither a model nor an engine."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import chess

from rookery.engines.player import Reply
from rookery.games import random_move
from rookery.trace import Outcome


class Player(Protocol):
    """Something that chooses moves. Many games may ask at the same time."""

    @property
    def name(self) -> str:
        """Unique in an evaluation; used in tables, PGN tags and file names."""

    def describe(self) -> Mapping[str, object]:
        """Everything that is needed to make the same player again: kind, version, hash, options."""

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        """The answer to the position of `board`, whose move stack holds the game so far.

        The same board and seed give the same answer, unless the player is an engine that cannot promise it.

        Raises:
            PeerFault: the endpoint does not answer. A fault is never a loss: the game is played again later.
            EngineFault: the engine died.
        """

    async def close(self) -> None:
        """Ends processes and connections. It may be called twice."""


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
