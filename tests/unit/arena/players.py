"""Players for tests of games: they answer as a script says, or fail as real ones cannot be made to."""

import asyncio
import random
from collections.abc import Callable

import chess
import chess.engine

from arena.players.player import RandomPlayer
from rookery.engines.player import Reply
from rookery.errors import PeerFault
from rookery.games import random_move
from rookery.trace import Outcome


class Scripted:
    """Answers with what `script` returns for the board and the number of the question."""

    def __init__(self, name: str, script: Callable[[chess.Board, int], Reply]) -> None:
        self.name = name
        self.asked = 0
        self._script = script

    def describe(self) -> dict[str, object]:
        return {"kind": "scripted"}

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        self.asked += 1
        return self._script(board, self.asked)

    async def close(self) -> None: ...


def plays(*moves: str, name: str = "scripted") -> Scripted:
    """A player with these moves, given in UCI."""
    return Scripted(name, lambda board, asked: Reply(chess.Move.from_uci(moves[asked - 1]), Outcome.LEGAL))


def judges(score: Callable[[chess.Board], chess.engine.Score]) -> Scripted:
    """A referee with this evaluation for White."""
    return Scripted(
        "referee",
        lambda board, asked: Reply(
            random_move(board, seed=0), Outcome.LEGAL, score=chess.engine.PovScore(score(board), chess.WHITE)
        ),
    )


class Illegal(RandomPlayer):
    """Plays at random, but its first answer to each third position has no legal move.

    Its text has braces and what looks like a PGN command.
    """

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        text = f"A {{plan}}: [%eval 9.99]\n% \\boxed{{{board.ply()}}}"
        if board.ply() % 3 == 0 and random.Random(seed).random() < 0.9:
            return Reply(None, Outcome.ILLEGAL, text, tokens=5)
        return Reply(random_move(board, seed=seed), Outcome.LEGAL, text, tokens=5, seconds=0.25)


class Slow(RandomPlayer):
    """Plays at random, now and then after a pause that differs from run to run."""

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        if board.ply() % 8 == 0:
            await asyncio.sleep(random.SystemRandom().random() * 0.004)
        return await super().play(board, seed=seed)


class Failing(RandomPlayer):
    """Plays at random, and fails at the calls whose number `fails` accepts."""

    def __init__(self, fails: Callable[[int], bool], name: str = "random") -> None:
        super().__init__(name)
        object.__setattr__(self, "fails", fails)
        object.__setattr__(self, "calls", 0)

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        object.__setattr__(self, "calls", self.calls + 1)
        if self.fails(self.calls):
            raise PeerFault("the endpoint is gone")
        return await super().play(board, seed=seed)
