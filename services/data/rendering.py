"""A FEN from outside as a prompt: the position is checked before any style sees it."""

import re
from collections.abc import Sequence

import chess

from rookery.errors import InvalidInput
from rookery.prompt import render
from rookery.trace import Position, Prompt
from services.data.pgn.games import phase_of

MAX_FEN_CHARS = 128
"""The longest legal FEN has about 90."""

MAX_MOVES = 1024
"""Before a position; no game of chess was ever so long."""

_MOVE = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")


def render_fen(fen: str, *, style: str, last_moves: Sequence[str] = ()) -> Prompt:
    """The prompt of a position in the named style. `last_moves`, in UCI, lead to it, oldest first.

    Raises:
        InvalidInput: no possible position, no such style, moves that are none.
    """
    board = _board(fen)
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


def _board(fen: str) -> chess.Board:
    if len(fen) > MAX_FEN_CHARS:
        raise InvalidInput(f"no FEN is {len(fen)} characters long: {fen[:MAX_FEN_CHARS]!r}...")
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise InvalidInput(f"no FEN: {fen!r}: {error}") from error
    if not board.is_valid():
        raise InvalidInput(f"no possible position: {fen!r}: {board.status()!r}")
    return board
