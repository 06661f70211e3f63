"""Text notations of a position, each a function with a name.

No notation loses information: the board can be read from the text, clocks included.
`rookery.prompt` turns the text into a prompt.

`pgn`, `san` and `uci` show the whole game if the known moves reach back to the initial position. Otherwise
the moves cannot be written in SAN, because the board before them is unknown: the position is then given as
FEN, with the last ten known moves in UCI.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import chess

_FEN = "Position (FEN): "
_BOARD = "Board: "
_LAST = "Last moves (UCI): "
_SAN = "Moves: "
_UCI = "Moves (UCI): "
_NONE = "none"
_RECENT = 10
_SIDES = {"White": chess.WHITE, "Black": chess.BLACK}


def spelled(board: chess.Board) -> str:
    """The FEN with one symbol for each square, so that a model need not count empty squares.

    >>> for rank in spelled(chess.Board()).split(" / "):
    ...     print(rank)
    Board: r n b q k b n r
    p p p p p p p p
    . . . . . . . .
    . . . . . . . .
    . . . . . . . .
    . . . . . . . .
    P P P P P P P P
    R N B Q K B N R
    White to move. Castling: KQkq. En passant: -. Halfmove clock: 0. Move: 1.
    """
    return f"{_BOARD}{' / '.join(str(board).splitlines())}\n{_status(board)}"


def diagram(board: chess.Board) -> str:
    """The board drawn in ASCII, White below (the format `ascii`).

    >>> print(diagram(chess.Board("4k3/8/8/8/8/5N2/4P3/R3K3 b Q - 3 40")))
    8 . . . . k . . .
    7 . . . . . . . .
    6 . . . . . . . .
    5 . . . . . . . .
    4 . . . . . . . .
    3 . . . . . N . .
    2 . . . . P . . .
    1 R . . . K . . .
      a b c d e f g h
    Black to move. Castling: Q. En passant: -. Halfmove clock: 3. Move: 40.
    """
    ranks = (f"{8 - row} {rank}" for row, rank in enumerate(str(board).splitlines()))
    return "\n".join((*ranks, "  a b c d e f g h", _status(board)))


def pieces(board: chess.Board) -> str:
    """The pieces of both sides with their squares, king first. A pawn is written as its square.

    >>> print(pieces(chess.Board("4k3/8/8/8/8/5N2/4P3/R3K3 b Q - 3 40")))
    White: Ke1 Ra1 Nf3 e2
    Black: Ke8
    Black to move. Castling: Q. En passant: -. Halfmove clock: 3. Move: 40.
    """
    armies = (f"{side}: {' '.join(_army(board, colour))}" for side, colour in _SIDES.items())
    return "\n".join((*armies, _status(board)))


def pgn(fen: str, moves: Sequence[str]) -> str:
    """The game as PGN. If its beginning is unknown: a set-up position, with the known moves in a comment.

    >>> pgn("rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2", ["e2e4", "e7e5"])
    '1. e4 e5 *'
    >>> print(pgn("4k3/8/8/8/8/5N2/4P3/4K3 w - - 3 40", ["g1f3", "d8e8"]))
    [SetUp "1"]
    [FEN "4k3/8/8/8/8/5N2/4P3/4K3 w - - 3 40"]
    <BLANKLINE>
    {Last moves (UCI): g1f3 d8e8} *
    """
    if (game := game_moves(fen, moves)) is None:
        return f'[SetUp "1"]\n[FEN "{fen}"]\n\n{{{_last_moves_line(moves)}}} *'
    return f"{chess.Board().variation_san(game)} *".lstrip()


def san(fen: str, moves: Sequence[str]) -> str:
    """The moves in SAN.

    >>> san("rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2", ["e2e4", "e7e5"])
    'Moves: e4 e5'
    """
    if (game := game_moves(fen, moves)) is None:
        return f"{_FEN}{fen}\n{_last_moves_line(moves)}"
    board = chess.Board()
    return _SAN + (" ".join(map(board.san_and_push, game)) or _NONE)


def uci(fen: str, moves: Sequence[str]) -> str:
    """The moves in UCI.

    >>> uci("rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2", ["e2e4", "e7e5"])
    'Moves (UCI): e2e4 e7e5'
    >>> print(uci("4k3/8/8/8/8/5N2/4P3/4K3 w - - 3 40", ["g1f3", "d8e8"]))
    Position (FEN): 4k3/8/8/8/8/5N2/4P3/4K3 w - - 3 40
    Last moves (UCI): g1f3 d8e8
    """
    if game_moves(fen, moves) is None:
        return f"{_FEN}{fen}\n{_last_moves_line(moves)}"
    return _UCI + (" ".join(moves) or _NONE)


def _status(board: chess.Board) -> str:
    _, turn, castling, en_passant, clock, number = board.fen().split()
    side = "White" if turn == "w" else "Black"
    rights = f"Castling: {castling}. En passant: {en_passant}."
    return f"{side} to move. {rights} Halfmove clock: {clock}. Move: {number}."


def _army(board: chess.Board, colour: chess.Color) -> list[str]:
    return [
        chess.piece_symbol(kind).upper().removeprefix("P") + chess.SQUARE_NAMES[square]
        for kind in reversed(chess.PIECE_TYPES)
        for square in board.pieces(kind, colour)
    ]


def _last_moves_line(moves: Sequence[str]) -> str:
    return _LAST + (" ".join(moves[-_RECENT:]) or _NONE)


def game_moves(fen: str, moves: Iterable[str]) -> list[chess.Move] | None:
    """`moves` if they lead from the initial position to `fen`: the whole game. Otherwise None."""
    try:
        board = _replay(moves)
    except ValueError:
        return None
    return board.move_stack if board.fen() == chess.Board(fen).fen() else None


def _replay(moves: Iterable[str]) -> chess.Board:
    board = chess.Board()
    for move in moves:
        try:
            board.push_uci(move)
        except ValueError:
            board.push_san(move)
    return board


FORMATS: Mapping[str, Callable[[str, Sequence[str]], str]] = MappingProxyType(
    {
        "fen": lambda fen, moves: _FEN + fen,
        "spelled": lambda fen, moves: spelled(chess.Board(fen)),
        "ascii": lambda fen, moves: diagram(chess.Board(fen)),
        "pieces": lambda fen, moves: pieces(chess.Board(fen)),
        "pgn": pgn,
        "san": san,
        "uci": uci,
    }
)
"""The writers of the formats by name. They take a FEN and the moves before it in UCI."""
