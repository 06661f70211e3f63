"""Illegal moves of every kind, as training examples.

From the obvious (nothing stands there) to what only the rules of check know: a pinned piece, a king
into check, castling through it.
"""

import random

import chess


def illegal_move(board: chess.Board, rng: random.Random) -> str:
    """An illegal move in UCI. Its kind is drawn from those that the position has."""
    kinds = [moves for moves in illegal_moves(board) if moves]
    moves = kinds[int(rng.random() * len(kinds))]
    return moves[int(rng.random() * len(moves))].uci()


def illegal_moves(board: chess.Board) -> list[list[chess.Move]]:
    """Illegal moves by kind, from those that only the rules of check forbid to those of nothing at all."""
    kinds = (_into_check, _theirs, _ours, _nothing)
    return [[move for move in kind(board) if not board.is_legal(move)] for kind in kinds]


def _into_check(board: chess.Board) -> list[chess.Move]:
    """Pseudo-legal moves that leave the king in check."""
    return [*board.generate_pseudo_legal_moves(), *_castling_that_stands(board)]


def _castling_that_stands(board: chess.Board) -> list[chess.Move]:
    """Castling by the king's two squares, lawful or not, wherever king and rook are at home."""
    rank = chess.BB_RANK_1 if board.turn else chess.BB_RANK_8
    king = board.king(board.turn)
    home = chess.E1 if board.turn else chess.E8
    if king != home or not board.rooks & board.occupied_co[board.turn] & rank & chess.BB_CORNERS:
        return []
    return [chess.Move(home, home + 2), chess.Move(home, home - 2)]


def _theirs(board: chess.Board) -> list[chess.Move]:
    """The opponent's moves."""
    other = board.copy(stack=False)
    other.turn = not board.turn
    other.ep_square = None
    return list(other.generate_pseudo_legal_moves())


def _ours(board: chess.Board) -> list[chess.Move]:
    """Pieces to squares they cannot reach: through others, onto their own, in no direction of theirs."""
    return [
        chess.Move(start, end)
        for start in chess.SquareSet(board.occupied_co[board.turn])
        for end in chess.SQUARES
        if start != end
    ]


def _nothing(board: chess.Board) -> list[chess.Move]:
    """Moves from an empty square."""
    empty = chess.SquareSet(~board.occupied & chess.BB_ALL)
    return [chess.Move(start, end) for start in empty for end in chess.SQUARES if start != end]
