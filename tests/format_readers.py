"""Reads the text of each of `rookery.formats` again, by which the tests show that none loses information."""

import re
from collections.abc import Callable, Iterable

import chess


def read_spelled(text: str) -> chess.Board:
    ranks, status = text.removeprefix("Board: ").split("\n")
    return _board(ranks.replace(" / ", "/"), status)


def read_diagram(text: str) -> chess.Board:
    *ranks, _, status = text.split("\n")
    return _board("/".join(rank[2:] for rank in ranks), status)


def read_pieces(text: str) -> chess.Board:
    *armies, status = text.split("\n")
    board = chess.Board(None)
    for (side, colour), army in zip((("White", chess.WHITE), ("Black", chess.BLACK)), armies, strict=True):
        for name in army.removeprefix(f"{side}:").split():
            piece = chess.Piece.from_symbol(name[:-2] or "P")
            board.set_piece_at(chess.parse_square(name[-2:]), chess.Piece(piece.piece_type, colour))
    return _board(str(board).replace("\n", "/"), status)


def read_pgn(text: str) -> chess.Board:
    if text.startswith("["):
        return chess.Board(text.split('"')[3])
    return _replayed(word for word in text.split() if word[-1] not in ".*")


def read_moves(text: str) -> chess.Board:
    if text.startswith("Position (FEN): "):
        return _read_fen(text.partition("\n")[0])
    moves = text.removeprefix("Moves (UCI): ").removeprefix("Moves: ").split()
    return _replayed([] if moves == ["none"] else moves)


def _read_fen(text: str) -> chess.Board:
    return chess.Board(text.removeprefix("Position (FEN): "))


def _board(ranks: str, status: str) -> chess.Board:
    """From ranks as `str(board)` writes them, a slash between, and the line on rights and clocks."""
    side, *rights = (sentence.split()[-1 if ":" in sentence else 0] for sentence in status[:-1].split(". "))
    placed = re.sub(r"\.+", lambda empty: str(len(empty[0])), ranks.replace(" ", ""))
    return chess.Board(" ".join((placed, side[0].lower(), *rights)))


def _replayed(moves: Iterable[str]) -> chess.Board:
    board = chess.Board()
    for move in moves:
        try:
            board.push_uci(move)
        except ValueError:
            board.push_san(move)
    return board


READERS: dict[str, Callable[[str], chess.Board]] = {
    "fen": _read_fen,
    "spelled": read_spelled,
    "ascii": read_diagram,
    "pieces": read_pieces,
    "pgn": read_pgn,
    "san": read_moves,
    "uci": read_moves,
}
"""By the name of the format. They raise ValueError for other text."""
