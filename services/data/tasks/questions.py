"""Chooses one of RookWorld's questions for a position: its candidate moves, or the result of a move.

What is drawn depends on the seed and the position alone, never on the order of the work. Nothing is
answered here: a data set's answers are labels of `services.data.tasks.rookworld`, and those of a policy
the reward service judges.
"""

import random
from dataclasses import dataclass, replace

import chess

from rookery.prompt import POLICY_TASK, STATE_TASK
from rookery.trace import Position
from services.data.tasks.unlawful import illegal_move


@dataclass(frozen=True, slots=True)
class Mix:
    """The shares of the kinds of lines, each in [0, 1].

    `state` is the share of `A:` lines among all lines. `illegal` is the share of `A:` lines with an illegal
    move. In `ending` of the other `A:` lines the move ends the game, if such a move exists.
    """

    state: float = 0.2
    illegal: float = 0.05
    ending: float = 0.5


MIX = Mix()


def asked(position: Position, *, seed: int, mix: Mix = MIX) -> Position:
    """The position with its task set and, for the task `A`, its move."""
    rng = random.Random(f"{seed}:{position.id}")
    if rng.random() < mix.state:
        return replace(position, task=STATE_TASK, move=state_move(chess.Board(position.fen), rng, mix=mix))
    return replace(position, task=POLICY_TASK)


def state_move(board: chess.Board, rng: random.Random, *, mix: Mix = MIX) -> str:
    """A move in UCI to ask about, legal or not."""
    if rng.random() < mix.illegal:
        return illegal_move(board, rng)
    moves = list(board.legal_moves)
    if rng.random() < mix.ending:
        moves = [move for move in moves if _ends(board, move)] or moves
    return moves[int(rng.random() * len(moves))].uci()


def _ends(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    ended = board.is_game_over()
    board.pop()
    return ended
