"""Boards that a game can reach, as a hypothesis strategy."""

import chess
from hypothesis import strategies as st


@st.composite
def boards(draw: st.DrawFn) -> chess.Board:
    """A position with at least one legal move, reached from the start by at most 60 legal moves."""
    board = chess.Board()
    for choice in draw(st.lists(st.integers(0, 2**16), max_size=60)):
        legal = list(board.legal_moves)
        move = legal[choice % len(legal)]
        board.push(move)
        if not any(board.legal_moves):
            board.pop()
    return board
