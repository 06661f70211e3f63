"""Renders a FEN from a request as a prompt. The position is validated first."""

import re
from collections.abc import Sequence

from chess_datasets.pgn.games import phase_of
from rookery.errors import InvalidInput
from rookery.fen import read_fen
from rookery.prompt import render
from rookery.trace import Position, Prompt

MAX_MOVES = 1024
"""The most moves that may come before a position; no known game is this long."""

_MOVE = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")


def render_fen(fen: str, *, style: str, last_moves: Sequence[str] = ()) -> Prompt:
    """The prompt of a position in the named style. `last_moves` are the moves before it in UCI, oldest
    first. Raises `InvalidInput` if the FEN is not a legal position, the style does not exist, or a move is
    not UCI."""
    board = read_fen(fen)
    if len(last_moves) > MAX_MOVES:
        raise InvalidInput(f"{len(last_moves)} last moves: at most {MAX_MOVES}")
    for move in last_moves:
        if not _MOVE.fullmatch(move):
            raise InvalidInput(f"last move {move[:20]!r} is not in UCI, as e2e4 is")
    position = Position(
        id="asked",
        fen=board.fen(),
        ply=board.ply(),
        phase=phase_of(board),
        game_id="",
        last_moves=tuple(last_moves),
    )
    return render(position, style=style)
