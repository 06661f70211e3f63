"""What pieces are worth, and what a series of captures on one square brings.

The static exchange decides which facts are worth a word and where a line has come to rest. It is never
stated as a truth: it overlooks pins, checks and everything that happens on other squares.
"""

import chess

VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 100}
"""In pawns; the king outweighs everything."""


def worth(board: chess.Board, square: chess.Square) -> int:
    """The value of what stands on a square, 0 when it is empty."""
    kind = board.piece_type_at(square)
    return VALUES[kind] if kind else 0


def gain(board: chess.Board, move: chess.Move) -> int:
    """What the mover wins, in pawns, if both sides go on capturing on the square of `move` while it pays.

    >>> gain(chess.Board("4k3/3p4/4p3/8/8/8/8/3QK3 w - - 0 1"), chess.Move.from_uci("d1d7"))
    -8
    """
    captured = VALUES[chess.PAWN] if board.is_en_passant(move) else worth(board, move.to_square)
    standing = worth(board, move.from_square)
    if move.promotion:
        standing = VALUES[move.promotion]
        captured += standing - VALUES[chess.PAWN]
    return captured - _recapture(
        board, move.to_square, not board.turn, standing, board.occupied ^ chess.BB_SQUARES[move.from_square]
    )


def _recapture(
    board: chess.Board, square: chess.Square, side: chess.Color, standing: int, occupied: chess.Bitboard
) -> int:
    """What `side` wins by taking what stands on the square now, or 0 if that does not pay."""
    attackers = board.attackers_mask(side, square, occupied) & occupied
    if not attackers:
        return 0
    origin = min(chess.scan_forward(attackers), key=lambda taker: worth(board, taker))
    if board.kings & chess.BB_SQUARES[origin] and board.attackers_mask(not side, square, occupied) & occupied:
        return 0
    rest = occupied ^ chess.BB_SQUARES[origin]
    return max(0, standing - _recapture(board, square, not side, worth(board, origin), rest))


_A_PIECE = 2
_A_ROOK = 5
_NEAR_KING = 2
"""Squares from the enemy king within which giving a piece for a pawn may be a sacrifice."""


def is_absurd(board: chess.Board, move: chess.Move) -> bool:
    """Whether one sees at a glance that a move only loses: nobody would look at it without a reason.

    It gives a piece for less, and takes nothing near the enemy king; or, without check, it leaves more to be
    taken, by a rook, than it takes; or a pawn becomes a bishop or a rook.
    """
    if move.promotion in (chess.BISHOP, chess.ROOK):
        return True
    king = board.king(not board.turn)
    near = king is not None and chess.square_distance(move.to_square, king) <= _NEAR_KING
    if gain(board, move) <= -_A_PIECE and not (near and board.is_capture(move)):
        return True
    after = board.copy(stack=False)
    after.push(move)
    taken = worth(board, move.to_square) + (VALUES[move.promotion] if move.promotion else 0)
    return not after.is_check() and best_gain(after) - taken >= _A_ROOK


def best_gain(board: chess.Board) -> int:
    """The most that one capture or promotion of the side to move gains, 0 when none pays."""
    return max((gain(board, move) for move in _noisy_moves(board)), default=0)


def _noisy_moves(board: chess.Board) -> list[chess.Move]:
    captures = list(board.generate_legal_captures())
    seventh = chess.BB_RANK_7 if board.turn else chess.BB_RANK_2
    pawns = board.pieces_mask(chess.PAWN, board.turn) & seventh
    if pawns:
        captures += [move for move in board.generate_legal_moves(pawns) if not board.is_capture(move)]
    return captures


def passed_turn(board: chess.Board) -> chess.Board | None:
    """The board if the side to move passed; None when it is in check, where passing has no meaning."""
    if board.is_check():
        return None
    board = board.copy(stack=False)
    board.push(chess.Move.null())
    return board
