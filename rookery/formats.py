"""Text notations of a position. Each has a name, a writer and a reader.

No notation loses information: `read` returns the board that `write` was given, clocks included.
`rookery.prompt` turns the text into a prompt.

`pgn`, `san` and `uci` show the whole game if the known moves reach back to the initial position. Otherwise
the moves cannot be written in SAN, because the board before them is unknown: the position is then given as
FEN, with the last ten known moves in UCI.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import chess

from rookery.errors import InvalidInput

_FEN = "Position (FEN): "
_BOARD = "Board: "
_LAST = "Last moves (UCI): "
_SAN = "Moves: "
_UCI = "Moves (UCI): "
_NONE = "none"
_RECENT = 10
_SIDES = {"White": chess.WHITE, "Black": chess.BLACK}


@dataclass(frozen=True, slots=True)
class Format:
    """A notation. `write` takes a FEN and the moves before it in UCI; `read` is its inverse.

    `read` raises ValueError for text that `write` cannot produce.
    """

    write: Callable[[str, Sequence[str]], str]
    read: Callable[[str], chess.Board]


def find_format(name: str) -> Format:
    """The format called `name`.

    >>> find_format("fen").write("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", [])
    'Position (FEN): 4k3/8/8/8/8/8/4P3/4K3 w - - 0 1'

    Raises:
        InvalidInput: there is no format of that name.
    """
    try:
        return FORMATS[name]
    except KeyError:
        raise InvalidInput(f"no format {name!r}: choose from {', '.join(FORMATS)}") from None


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
        return f'[SetUp "1"]\n[FEN "{fen}"]\n\n{{{_last(moves)}}} *'
    return f"{chess.Board().variation_san(game)} *".lstrip()


def san(fen: str, moves: Sequence[str]) -> str:
    """The moves in SAN.

    >>> san("rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2", ["e2e4", "e7e5"])
    'Moves: e4 e5'
    """
    if (game := game_moves(fen, moves)) is None:
        return f"{_FEN}{fen}\n{_last(moves)}"
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
        return f"{_FEN}{fen}\n{_last(moves)}"
    return _UCI + (" ".join(moves) or _NONE)


def read_spelled(text: str) -> chess.Board:
    """The board of `spelled`."""
    ranks, status = text.removeprefix(_BOARD).split("\n")
    return _board(ranks.replace(" / ", "/"), status)


def read_diagram(text: str) -> chess.Board:
    """The board of `diagram`."""
    *ranks, _, status = text.split("\n")
    return _board("/".join(rank[2:] for rank in ranks), status)


def read_pieces(text: str) -> chess.Board:
    """The board of `pieces`."""
    *armies, status = text.split("\n")
    board = chess.Board(None)
    for (side, colour), army in zip(_SIDES.items(), armies, strict=True):
        for name in army.removeprefix(f"{side}:").split():
            piece = chess.Piece.from_symbol(name[:-2] or "P")
            board.set_piece_at(chess.parse_square(name[-2:]), chess.Piece(piece.piece_type, colour))
    return _board(str(board).replace("\n", "/"), status)


def read_pgn(text: str) -> chess.Board:
    """The board of `pgn`."""
    if text.startswith("["):
        return chess.Board(text.split('"')[3])
    return _replayed(word for word in text.split() if word[-1] not in ".*")


def read_moves(text: str) -> chess.Board:
    """The board of `san` or `uci`."""
    if text.startswith(_FEN):
        return _read_fen(text.partition("\n")[0])
    moves = text.removeprefix(_UCI).removeprefix(_SAN).split()
    return _replayed([] if moves == [_NONE] else moves)


def _read_fen(text: str) -> chess.Board:
    return chess.Board(text.removeprefix(_FEN))


def _status(board: chess.Board) -> str:
    _, turn, castling, en_passant, clock, number = board.fen().split()
    side = "White" if turn == "w" else "Black"
    rights = f"Castling: {castling}. En passant: {en_passant}."
    return f"{side} to move. {rights} Halfmove clock: {clock}. Move: {number}."


def _board(ranks: str, status: str) -> chess.Board:
    """From ranks as `str(board)` writes them, a slash between, and the line of `_status`."""
    side, *rights = (sentence.split()[-1 if ":" in sentence else 0] for sentence in status[:-1].split(". "))
    placed = re.sub(r"\.+", lambda empty: str(len(empty[0])), ranks.replace(" ", ""))
    return chess.Board(" ".join((placed, side[0].lower(), *rights)))


def _army(board: chess.Board, colour: chess.Color) -> list[str]:
    return [
        chess.piece_symbol(kind).upper().removeprefix("P") + chess.SQUARE_NAMES[square]
        for kind in reversed(chess.PIECE_TYPES)
        for square in board.pieces(kind, colour)
    ]


def _last(moves: Sequence[str]) -> str:
    return _LAST + (" ".join(moves[-_RECENT:]) or _NONE)


def game_moves(fen: str, moves: Iterable[str]) -> list[chess.Move] | None:
    """`moves` if they lead from the initial position to `fen`: the whole game. Otherwise None."""
    try:
        board = _replayed(moves)
    except ValueError:
        return None
    return board.move_stack if board.fen() == chess.Board(fen).fen() else None


def _replayed(moves: Iterable[str]) -> chess.Board:
    board = chess.Board()
    for move in moves:
        try:
            board.push_uci(move)
        except ValueError:
            board.push_san(move)
    return board


FORMATS = MappingProxyType(
    {
        "fen": Format(lambda fen, moves: _FEN + fen, _read_fen),
        "spelled": Format(lambda fen, moves: spelled(chess.Board(fen)), read_spelled),
        "ascii": Format(lambda fen, moves: diagram(chess.Board(fen)), read_diagram),
        "pieces": Format(lambda fen, moves: pieces(chess.Board(fen)), read_pieces),
        "pgn": Format(pgn, read_pgn),
        "san": Format(san, read_moves),
        "uci": Format(uci, read_moves),
    }
)
"""Formats by name."""
