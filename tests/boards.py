"""Positions from games of random moves."""

import random
from collections.abc import Iterator

import chess


def random_boards(count: int, *, seed: int, plies: tuple[int, int]) -> Iterator[chess.Board]:
    """The last position of `count` games, which are not over after so many plies."""
    rng = random.Random(seed)
    while count:
        board = chess.Board()
        for _ in range(rng.randint(*plies)):
            if board.is_game_over():
                break
            board.push(rng.choice(list(board.legal_moves)))
        if not board.is_game_over():
            count -= 1
            yield board
