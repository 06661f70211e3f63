"""Openings from which positions are generated: a short list of well-known ones, or a table as from Lichess.

An opening is only a list of moves, without evaluation.
"""

import csv
from functools import cache
from pathlib import Path

import chess

from rookery.errors import InvalidInput

OPENINGS = (
    "",
    "e4",
    "d4",
    "c4",
    "Nf3",
    "e4 e5",
    "e4 c5",
    "d4 d5",
    "d4 Nf6",
    "e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7 Re1 b5 Bb3 d6 c3 O-O",
    "e4 e5 Nf3 Nc6 Bb5 Nf6 O-O Nxe4",
    "e4 e5 Nf3 Nc6 Bb5 a6 Bxc6 dxc6",
    "e4 e5 Nf3 Nc6 Bc4 Bc5 c3 Nf6 d3 d6",
    "e4 e5 Nf3 Nc6 Bc4 Nf6 Ng5 d5 exd5 Na5",
    "e4 e5 Nf3 Nc6 Bc4 Bc5 b4 Bxb4 c3 Ba5",
    "e4 e5 Nf3 Nc6 d4 exd4 Nxd4 Nf6 Nc3 Bb4",
    "e4 e5 Nf3 Nc6 Nc3 Nf6 Bb5 Bb4",
    "e4 e5 Nf3 Nf6 Nxe5 d6 Nf3 Nxe4 d4 d5",
    "e4 e5 Nf3 d6 d4 exd4 Nxd4 Nf6 Nc3 Be7",
    "e4 e5 f4 exf4 Nf3 g5 h4 g4 Ne5",
    "e4 e5 Nc3 Nf6 f4 d5 fxe5 Nxe4",
    "e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 a6 Bg5 e6 f4 Be7",
    "e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 g6 Be3 Bg7 f3 O-O Qd2 Nc6",
    "e4 c5 Nf3 Nc6 d4 cxd4 Nxd4 Nf6 Nc3 e5 Ndb5 d6",
    "e4 c5 Nf3 e6 d4 cxd4 Nxd4 Nc6 Nc3 Qc7",
    "e4 c5 Nf3 Nc6 Bb5 g6 O-O Bg7 Re1 e5",
    "e4 c5 c3 d5 exd5 Qxd5 d4 Nf6 Nf3 e6",
    "e4 c5 Nc3 Nc6 g3 g6 Bg2 Bg7 d3 d6",
    "e4 e6 d4 d5 Nc3 Nf6 Bg5 Be7 e5 Nfd7",
    "e4 e6 d4 d5 e5 c5 c3 Nc6 Nf3 Qb6",
    "e4 e6 d4 d5 Nc3 Bb4 e5 c5 a3 Bxc3+ bxc3 Ne7",
    "e4 e6 d4 d5 Nd2 Nf6 e5 Nfd7 Bd3 c5 c3 Nc6",
    "e4 c6 d4 d5 Nc3 dxe4 Nxe4 Bf5 Ng3 Bg6 h4 h6",
    "e4 c6 d4 d5 e5 Bf5 Nf3 e6 Be2 c5",
    "e4 c6 d4 d5 exd5 cxd5 c4 Nf6 Nc3 e6",
    "e4 d5 exd5 Qxd5 Nc3 Qa5 d4 Nf6 Nf3 c6",
    "e4 d6 d4 Nf6 Nc3 g6 f4 Bg7 Nf3 O-O",
    "e4 Nf6 e5 Nd5 d4 d6 Nf3 Bg4",
    "e4 g6 d4 Bg7 Nc3 d6 Be3 a6",
    "d4 d5 c4 e6 Nc3 Nf6 Bg5 Be7 e3 O-O Nf3 h6 Bh4 b6",
    "d4 d5 c4 e6 Nc3 Nf6 cxd5 exd5 Bg5 c6 e3 Be7",
    "d4 d5 c4 c6 Nf3 Nf6 Nc3 dxc4 a4 Bf5",
    "d4 d5 c4 c6 Nf3 Nf6 Nc3 e6 e3 Nbd7 Bd3 dxc4 Bxc4 b5",
    "d4 d5 c4 dxc4 Nf3 Nf6 e3 e6 Bxc4 c5 O-O a6",
    "d4 d5 c4 e5 dxe5 d4 Nf3 Nc6",
    "d4 d5 Nf3 Nf6 Bf4 e6 e3 c5 c3 Nc6",
    "d4 Nf6 c4 e6 Nc3 Bb4 e3 O-O Bd3 d5 Nf3 c5",
    "d4 Nf6 c4 e6 Nf3 b6 g3 Bb7 Bg2 Be7 O-O O-O",
    "d4 Nf6 c4 e6 g3 d5 Bg2 Be7 Nf3 O-O O-O dxc4",
    "d4 Nf6 c4 g6 Nc3 Bg7 e4 d6 Nf3 O-O Be2 e5 O-O Nc6 d5 Ne7",
    "d4 Nf6 c4 g6 Nc3 Bg7 e4 d6 f3 O-O Be3 e5",
    "d4 Nf6 c4 g6 Nc3 d5 cxd5 Nxd5 e4 Nxc3 bxc3 Bg7",
    "d4 Nf6 c4 c5 d5 e6 Nc3 exd5 cxd5 d6 e4 g6",
    "d4 Nf6 c4 c5 d5 b5 cxb5 a6 bxa6 Bxa6",
    "d4 Nf6 Bg5 Ne4 Bf4 d5",
    "d4 f5 g3 Nf6 Bg2 g6 Nf3 Bg7 O-O O-O c4 d6",
    "d4 f5 c4 Nf6 g3 e6 Bg2 Be7 Nf3 O-O",
    "c4 e5 Nc3 Nf6 Nf3 Nc6 g3 d5 cxd5 Nxd5",
    "c4 c5 Nf3 Nf6 Nc3 Nc6 g3 g6 Bg2 Bg7",
    "c4 Nf6 Nc3 g6 g3 Bg7 Bg2 O-O e4 d6",
    "Nf3 d5 g3 Nf6 Bg2 c6 O-O Bg4 d3 Nbd7",
    "Nf3 d5 c4 d4 e3 Nc6 exd4 Nxd4",
    "b3 e5 Bb2 Nc6 e3 d5 Bb5 Bd6",
    "f4 d5 Nf3 g6 e3 Bg7 Be2 Nf6",
)
"""Moves in SAN: from none at all (the initial position) to about eight moves of theory."""


def read_openings(path: Path) -> tuple[str, ...]:
    """The openings of a table as Lichess publishes it: tab-separated, with a column `pgn`.

    Raises:
        InvalidInput: the column is missing, or a line has an illegal move.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        if "pgn" not in (rows.fieldnames or ()):
            raise InvalidInput(f"no column 'pgn' in {str(path)!r}")
        openings = tuple(_moves_of(row["pgn"] or "") for row in rows)
    for opening in openings:
        play(opening)
    return openings


@cache
def _replayed(opening: str) -> chess.Board:
    board = chess.Board()
    try:
        for san in opening.split():
            board.push_san(san)
    except ValueError as error:
        raise InvalidInput(f"no opening {opening!r}: {error}") from error
    return board


def play(opening: str) -> chess.Board:
    """The board after `opening`.

    >>> play("e4 e5").fen()
    'rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2'

    Raises:
        InvalidInput: a move is illegal.
    """
    return _replayed(opening).copy()


def _moves_of(pgn: str) -> str:
    """Removes move numbers: `1. e4 e5` becomes `e4 e5`."""
    return " ".join(word for word in pgn.split() if not word.endswith("."))
