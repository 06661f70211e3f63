"""From a position to the messages a model reads: the only place that knows prompts.

A style is a pure function of the position, chosen by name. `mover` styles show every position from
the side to move: with Black to move the board is mirrored, so White is always the one to play. The
answer is then read on that mirrored board (`Prompt.fen`), which changes no reward because the
reward is colour-blind.
"""

from collections.abc import Callable

import chess

from rookery.errors import InvalidInput
from rookery.trace import Message, Position, Prompt

_INSTRUCTIONS = (
    "You are a strong chess player. Study the position, name a few candidate moves, reject the weaker "
    "ones with a reason, then choose. Reason inside <think> and </think>. Finish with your move in SAN "
    "or UCI inside \\boxed{}, for example \\boxed{Nf3}."
)


def render(position: Position, *, style: str) -> Prompt:
    """The prompt of `position` in the named style.

    Raises:
        InvalidInput: no such style, or the position has no sound FEN.
    """
    try:
        write = STYLES[style]
    except KeyError:
        raise InvalidInput(f"no prompt style {style!r}: choose from {', '.join(sorted(STYLES))}") from None
    try:
        return write(position)
    except ValueError as error:
        raise InvalidInput(f"position {position.id!r}: {error}") from error


def piece_list(board: chess.Board) -> str:
    """Pieces as letter and square, a1 to h8, then castling rights and the en-passant square.

    >>> piece_list(chess.Board("4k3/8/8/8/8/8/4P3/R3K3 w Q - 0 1"))
    'Ra1Ke1Pe2ke8 Q -'
    """
    pieces = "".join(
        piece.symbol() + chess.SQUARE_NAMES[square] for square, piece in sorted(board.piece_map().items())
    )
    return f"{pieces} {board.castling_xfen()} {_en_passant(board)}"


def _en_passant(board: chess.Board) -> str:
    if board.ep_square is None or not board.has_legal_en_passant():
        return "-"
    return chess.SQUARE_NAMES[board.ep_square]


def squares(board: chess.Board) -> str:
    """The board spelled out, one character a square, a1 to h8, `.` for an empty one.

    >>> squares(chess.Board())[:16]
    'RNBQKBNRPPPPPPPP'
    """
    return "".join(piece.symbol() if (piece := board.piece_at(square)) else "." for square in chess.SQUARES)


def _fen(position: Position) -> Prompt:
    return _chat(position, "fen", f"Position (FEN): {position.fen}")


def _fen_moves(position: Position) -> Prompt:
    board = chess.Board(position.fen)
    legal = " ".join(sorted(board.san(move) for move in board.legal_moves))
    return _chat(position, "fen-moves", f"Position (FEN): {position.fen}\nLegal moves: {legal}")


def _board(position: Position) -> Prompt:
    side = "White" if " w " in position.fen else "Black"
    board = chess.Board(position.fen)
    return _chat(
        position,
        "board",
        f"{board}\n{side} to move. FEN: {position.fen}\n"
        f"Last moves: {' '.join(position.last_moves) or 'none'}",
    )


def _chat(position: Position, style: str, text: str) -> Prompt:
    messages = (Message("system", _INSTRUCTIONS), Message("user", text))
    return Prompt(style=style, messages=messages, fen=position.fen)


def _mover_pieces(position: Position) -> Prompt:
    board = mover_board(position.fen)
    return Prompt("mover-pieces", (Message("user", piece_list(board)),), board.fen())


def _mover_squares(position: Position) -> Prompt:
    board = mover_board(position.fen)
    text = f"{squares(board)} {board.castling_xfen()} {_en_passant(board)}"
    return Prompt("mover-squares", (Message("user", text),), board.fen())


def mover_board(fen: str) -> chess.Board:
    """The board with White to move: mirrored top to bottom, colours swapped, when Black is.

    >>> mover_board("4k3/4p3/8/8/8/8/8/4K3 b - - 0 1").fen()
    '4k3/8/8/8/8/8/4P3/4K3 w - - 0 1'
    """
    board = chess.Board(fen)
    return board if board.turn else board.mirror()


STYLES: dict[str, Callable[[Position], Prompt]] = {
    "fen": _fen,
    "fen-moves": _fen_moves,
    "board": _board,
    "mover-pieces": _mover_pieces,
    "mover-squares": _mover_squares,
}
"""Prompt styles by name. `mover-*` are terse, for small models with their own tokenizer."""
