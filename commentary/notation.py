"""Moves as texts write them: SAN or UCI."""

import re
from collections.abc import Sequence

import chess

_UCI = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")


def parse_move(board: chess.Board, text: str) -> chess.Move | None:
    """The legal move that is written so; a check or mate sign may be missing, but not be wrong.

    >>> str(parse_move(chess.Board(), "Nf3")), parse_move(chess.Board(), "Nf3+")
    ('g1f3', None)
    """
    try:
        if _UCI.fullmatch(text):
            return board.parse_uci(text)
        move = board.parse_san(text)
    except ValueError:
        return None
    right = board.san(move)
    return move if text in (right, right.rstrip("+#")) else None


def replayed(
    start: chess.Board, moves: Sequence[chess.Move], more: Sequence[str]
) -> tuple[list[chess.Move], chess.Board] | None:
    """All moves and the board after them; None when one of `more` cannot be played."""
    board, played = start.copy(stack=False), list(moves)
    for move in moves:
        board.push(move)
    for text in more:
        following = parse_move(board, text)
        if following is None:
            return None
        board.push(following)
        played.append(following)
    return played, board
