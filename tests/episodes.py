"""Episodes as rollouts drive them, for comparison with those that other trainers play over HTTP."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import chess

from rookery.episodes import environment
from rookery.games import position_of
from rookery.trace import Completion, Turn, Verdict


@dataclass(frozen=True)
class Played:
    """A turn: the last message of its prompt, the answer, and what came of it."""

    asked: str
    answer: str
    observation: str
    reward: float


def highest(fen: str) -> str:
    """A player: the last legal move in the alphabet."""
    return f"\\boxed{{{max(chess.Board(fen).legal_moves, key=chess.Move.uci).uci()}}}"


async def play(
    spec: str,
    fen: str,
    judge: Callable[[str, str], Awaitable[Verdict]],
    *,
    style: str = "fen",
    seed: int = 0,
    slot: int = 0,
) -> list[Played]:
    """The episode of `highest`."""
    made = environment(spec, slot=slot)
    start = made.reset(position_of(chess.Board(fen)), style=style, seed=seed + slot, judge=judge)
    prompt, turns = await made.begin() or start, list[Played]()
    while prompt:
        asked, answer = prompt.messages[-1].content, highest(prompt.fen)
        turn = Turn(Completion(answer, (), (), "stop", 0), await judge(prompt.fen, answer))
        step = await made.step(turn)
        turns.append(Played(asked, answer, step.observation, replace(turn, rewards=step.rewards).reward))
        prompt = step.prompt
    return turns
