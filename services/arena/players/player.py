"""What every player is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import chess
import chess.engine

from rookery.trace import Outcome


@dataclass(frozen=True, slots=True)
class Reply:
    """A player's answer to one position of a game.

    Attributes:
        move: the move, legal in the position; None unless `outcome` is `Outcome.LEGAL`.
        outcome: what the answer is, in the reward parser's terms. Engines always answer with a legal move.
        text: what a model wrote, reasoning included; empty for the others.
        tokens: the number of tokens that a model wrote; 0 if the endpoint does not tell.
        score: the evaluation of the position by an engine, or by a model that writes one; else None.
        seconds: how long the player took.
    """

    move: chess.Move | None
    outcome: Outcome
    text: str = ""
    tokens: int = 0
    score: chess.engine.PovScore | None = None
    seconds: float = 0.0


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
