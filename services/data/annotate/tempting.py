"""Moves a player would look at whatever the engine thinks: captures, checks, attacks, castling.

The engine's best lines show what works; an analysis also needs what looks as if it did.
"""

from collections.abc import Set

import chess

from commentary.concepts.pieces import at_home
from commentary.exchange import gain, worth

_LURE_OF_CHECK = 1.5
_LURE_OF_CASTLING = 1.2
_LURE_OF_DEVELOPMENT = 1.0
_LEAST_LURE = 0.9
_ABSURD = -4
"""In pawns: nobody looks at a move that gives away so much."""


def tempting_moves(board: chess.Board, *, leave_out: Set[chess.Move], count: int) -> tuple[chess.Move, ...]:
    """At most `count` natural moves, the most tempting first.

    >>> board = chess.Board("4k3/8/8/4p3/8/5N2/8/4K3 w - - 0 1")
    >>> [move.uci() for move in tempting_moves(board, leave_out=set(), count=1)]
    ['f3e5']
    """
    lures = [(_lure(board, move), move.uci(), move) for move in board.legal_moves if move not in leave_out]
    lures = sorted((lure for lure in lures if lure[0] >= _LEAST_LURE), key=lambda lure: (-lure[0], lure[1]))
    return tuple(move for _, _, move in lures[:count])


def _lure(board: chess.Board, move: chess.Move) -> float:
    gained = gain(board, move)
    if gained <= _ABSURD:
        return 0.0
    lure = 0.0
    if board.is_capture(move):
        bite = max(1, worth(board, move.to_square))
        lure += 0.8 + 0.3 * bite + (1.0 if gained >= 0 else -0.15 * worth(board, move.from_square))
    if board.gives_check(move):
        lure += _LURE_OF_CHECK
    if board.is_castling(move):
        lure += _LURE_OF_CASTLING
    if move.promotion:
        lure += 3.0 if move.promotion == chess.QUEEN else -2.0
    if move.from_square in at_home(board, board.turn):
        lure += _LURE_OF_DEVELOPMENT
    return lure + _aim(board, move)


def _aim(board: chess.Board, move: chess.Move) -> float:
    """How much the moved piece would look at from its new square, if it can stand there."""
    kind = board.piece_type_at(move.from_square)
    if kind in (None, chess.KING) or gain(board, move) < 0:
        return 0.0
    prey = [
        worth(board, square)
        for square in chess.SquareSet(_reach(board, move) & board.occupied_co[not board.turn] & ~board.kings)
        if worth(board, square) > worth(board, move.from_square)
        or not board.attackers_mask(not board.turn, square)
    ]
    return 0.35 * min(4, max(prey, default=0)) + 0.4 * (len(prey) > 1)


def _reach(board: chess.Board, move: chess.Move) -> chess.Bitboard:
    kind = board.piece_type_at(move.from_square)
    square = move.to_square
    if kind == chess.PAWN:
        return chess.BB_PAWN_ATTACKS[board.turn][square]
    if kind == chess.KNIGHT:
        return chess.BB_KNIGHT_ATTACKS[square]
    occupied = board.occupied & ~chess.BB_SQUARES[move.from_square]
    diagonal = chess.BB_DIAG_ATTACKS[square][chess.BB_DIAG_MASKS[square] & occupied]
    straight = (
        chess.BB_RANK_ATTACKS[square][chess.BB_RANK_MASKS[square] & occupied]
        | chess.BB_FILE_ATTACKS[square][chess.BB_FILE_MASKS[square] & occupied]
    )
    return {chess.BISHOP: diagonal, chess.ROOK: straight}.get(kind or 0, diagonal | straight)
