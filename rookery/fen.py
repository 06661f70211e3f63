"""Reads FENs from outside: a possible position, or an error that names the flaw.

Engines crash on impossible positions, so none is given to them. Castling flags and en-passant squares that
nobody can use are dropped, as Stockfish and Lichess do: other programs often write them.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import chess

from rookery.errors import InvalidInput

MAX_FEN_CHARS = 128
"""The longest FEN that is read. The longest legal one has about 90 characters."""

PAWNS = 8
"""Pawns of each side at the start. No side can have more pawns and promoted pieces together."""

CASTLING, EN_PASSANT = "castling flags", "en-passant squares"
"""What is dropped from a FEN if nobody can use it."""

NAMED = 20
"""The most defects of a file that are named. All are counted."""

_DEFECT_CHARS = 300

_COUNTER_DIGITS = 9
"""More do not fit the integers of Parquet and protobuf."""


def read_fen(fen: object, *, dropped: Counter[str] | None = None, chess960: bool = False) -> chess.Board:
    """The board of a FEN. `dropped` counts what is dropped from it.

    With `chess960`, castling flags that all exist in Chess960 alone give a board of Chess960. Raises
    `InvalidInput` if `fen` is not a FEN, or the position is impossible.

    >>> dropped = Counter()
    >>> read_fen("4k3/8/8/8/8/8/4P3/4K3 w KQ e6 0 1", dropped=dropped).fen()
    '4k3/8/8/8/8/8/4P3/4K3 w - - 0 1'
    >>> dict(dropped)
    {'castling flags': 1, 'en-passant squares': 1}
    """
    text = _bounded(fen)
    try:
        board = _Board(text)
    except ValueError as error:
        raise InvalidInput(f"not a FEN: {text!r}: {error}") from error
    board.promoted = chess.BB_EMPTY  # python-chess finds no king, so no check, if it is marked "~"
    castling, en_passant = board.castling_rights, board.ep_square
    flaws = _flaws(board)
    if board.chess960 and not chess960:
        raise InvalidInput(f"a position of Chess960: {fen!r}")
    if flaws:
        raise InvalidInput(f"impossible position {fen!r}: {', '.join(flaws)}")
    if dropped is not None:
        dropped += Counter(
            {CASTLING: castling != board.castling_rights, EN_PASSANT: en_passant != board.ep_square}
        )
    return board


def _bounded(fen: object) -> str:
    """`fen`, if it is a text that python-chess reads as it was meant. Raises `InvalidInput`."""
    if not isinstance(fen, str):
        raise InvalidInput(f"not a FEN: {repr(fen)[:MAX_FEN_CHARS]}")
    if len(fen) > MAX_FEN_CHARS:
        raise InvalidInput(f"a FEN cannot have {len(fen)} characters: {fen[:MAX_FEN_CHARS]!r}...")
    if not fen.isascii():  # python-chess would read U+212A, the Kelvin sign, as a king
        raise InvalidInput(f"not a FEN: {fen!r}: characters beyond ASCII")
    if any("_" in counter or len(counter) > _COUNTER_DIGITS for counter in fen.split()[4:6]):
        raise InvalidInput(f"not a FEN: {fen!r}: the half-move clock or the move number is no such number")
    return fen


@dataclass(slots=True)
class FenReport:
    """How the FENs of a file were read: what was dropped from them, and the lines that were left out."""

    dropped: Counter[str] = field(default_factory=Counter)
    skipped_count: int = 0
    skipped: list[str] = field(default_factory=list)
    """The first lines that were left out, and why."""

    def skip(self, place: str, reason: object) -> None:
        """Counts a line or row that is left out, and names it if it is one of the first."""
        self.skipped_count += 1
        if len(self.skipped) < NAMED:
            self.skipped.append(f"{place}: {reason}"[:_DEFECT_CHARS])

    @property
    def reasons(self) -> str:
        """Why nothing was read, by the first lines that were left out."""
        return "; ".join(self.skipped[:3]) or "it is empty"

    @property
    def facts(self) -> dict[str, Any]:
        """The report for a manifest or report.json."""
        dropped = dict(sorted(self.dropped.items()))
        return {"dropped": dropped, "skipped_count": self.skipped_count, "skipped": self.skipped}

    def lines(self, place: str) -> list[str]:
        """The report on the file `place` for the terminal. Empty if nothing was left out or dropped."""
        lines = [f"{place}: {kind} dropped: {count}" for kind, count in sorted(self.dropped.items())]
        if self.skipped_count:
            lines += [f"{place}: left out: {self.skipped_count}", *(f"  {line}" for line in self.skipped)]
        return lines


def _flaws(board: chess.Board) -> list[str]:
    """The reasons why `board` is impossible. Drops from it what nobody can use, and sets `chess960`."""
    if board.castling_rights != board.clean_castling_rights():
        board.chess960 = True
        if board.castling_rights != board.clean_castling_rights() or not _from_one_array(board):
            board.chess960 = False
            board.castling_rights = board.clean_castling_rights()
    status = board.status()
    if board.ep_square is not None and (status or not board.has_legal_en_passant()):
        board.ep_square = None
        status = board.status()
    flaws = [flag.name.lower().replace("_", " ") for flag in status if flag.name] if status else []
    if any(_least_pawns(board, side) > PAWNS for side in board.occupied_co):
        flaws.append("too many promoted pieces")
    return flaws


class _Board(chess.Board):
    """A board that reads a valid piece placement in one pass. python-chess sets each piece by itself, which
    takes as long as everything else in this module together."""

    def _set_board_fen(self, fen: str) -> None:
        pieces = _bitboards(fen)
        if pieces is None:
            super()._set_board_fen(fen)
            return
        white, black = 0, 0
        for symbol, squares in pieces.items():
            if symbol.isupper():
                white |= squares
            else:
                black |= squares
        self.pawns = pieces["P"] | pieces["p"]
        self.knights = pieces["N"] | pieces["n"]
        self.bishops = pieces["B"] | pieces["b"]
        self.rooks = pieces["R"] | pieces["r"]
        self.queens = pieces["Q"] | pieces["q"]
        self.kings = pieces["K"] | pieces["k"]
        self.promoted = chess.BB_EMPTY
        self.occupied_co = [black, white]
        self.occupied = black | white


def _bitboards(placement: str) -> dict[str, chess.Bitboard] | None:
    """The squares of each piece symbol, or None if `placement` is not valid; python-chess then says why."""
    ranks = placement.split("/")
    if len(ranks) != len(chess.RANK_NAMES):
        return None
    pieces = dict.fromkeys("PNBRQKpnbrqk", chess.BB_EMPTY)
    square = chess.BB_A8
    for rank in ranks:
        end, gap = square << 8, False
        for symbol in rank:
            if symbol in pieces:
                pieces[symbol] |= square
                square, gap = square << 1, False
            elif "1" <= symbol <= "8" and not gap:
                square, gap = square << int(symbol), True
            else:
                return None
        if square != end:
            return None
        square >>= 16
    return pieces


def _least_pawns(board: chess.Board, side: chess.Bitboard) -> int:
    """The least number of pawns and promoted pawns among the pieces of one side, on the squares `side`."""
    spare = max(0, chess.popcount(side & board.queens) - 1)
    for pieces in (board.rooks, board.bishops, board.knights):
        spare += max(0, chess.popcount(side & pieces) - 2)
    return spare + chess.popcount(side & board.pawns)


def _from_one_array(board: chess.Board) -> bool:
    """Whether one Chess960 starting position explains all castling rights: both sides on the same files."""
    white = board.castling_rights & chess.BB_RANK_1
    black = (board.castling_rights & chess.BB_RANK_8) >> 56
    if not white or not black:
        return True
    king, black_king = board.king(chess.WHITE), board.king(chess.BLACK)
    if king is None or black_king != chess.square_mirror(king):
        return False
    queenside = (white | black) & (chess.BB_SQUARES[king] - 1)
    kingside = (white | black) & ~queenside
    return chess.popcount(queenside) <= 1 and chess.popcount(kingside) <= 1
