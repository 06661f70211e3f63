"""The environment of RookWorld's `A:` task: a board and a move in, the next state and reward out.

python-chess decides legality. (The published data set calls a move illegal only if it starts from an empty
square.) Repetitions are not visible in a FEN, so they never end a game here.
"""

from collections.abc import Sequence

import chess

from rookery import rookworld
from rookery.errors import InvalidInput
from rookery.fen import read_fen

LEGAL_REWARD = 0.001
WIN_REWARD = 1.0
DRAW_REWARD = 0.5
ILLEGAL_REWARD = -1.0


def step(fen: str, move: str, *, recent: Sequence[str] = ()) -> rookworld.StateLine:
    """Plays `move` on `fen`, after the moves `recent`; returns the `A:` line of the step.

    An illegal move leaves the board unchanged, gets `ILLEGAL_REWARD` and truncates the game. The reward of a
    legal move is from the view of the side that played it. Raises `InvalidInput` if `fen` is not a FEN of a
    possible position, or `move` is not in UCI.

    >>> step("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", "a1a8").answer
    StateAnswer(next_fen='R5k1/5ppp/8/8/8/8/8/6K1 b - - 1 1', reward=1.0, terminated=True, truncated=False)
    """
    if not rookworld.is_fen(fen):
        raise InvalidInput(f"not a FEN: {fen[: rookworld.MAX_ANSWER_CHARS]!r}")
    if not rookworld.is_move(move):
        raise InvalidInput(f"not a move in UCI: {move[: rookworld.MAX_ANSWER_CHARS]!r}")
    board = read_fen(fen)
    history = (*recent, move)[-rookworld.RECENT :]
    is_legal = move[:2] != move[2:4] and board.is_legal(chess.Move.from_uci(move))
    if is_legal:
        board.push_uci(move)
    answer = rookworld.StateAnswer(
        next_fen=board.fen() if is_legal else fen,
        reward=_reward(board) if is_legal else ILLEGAL_REWARD,
        terminated=board.is_game_over(),
        truncated=not is_legal,
    )
    return rookworld.StateLine(fen, move, history, answer)


def _reward(board: chess.Board) -> float:
    outcome = board.outcome()
    if outcome is None:
        return LEGAL_REWARD
    return DRAW_REWARD if outcome.winner is None else WIN_REWARD
