"""Answers to ChessQA's questions by the rules of chess, without a model: a reference for its scores.

Structural questions have exact answers. A tactic is answered with a mate in one, or else the capture of the
most valuable piece; an evaluation by material; a choice of comments with the first. Motifs are not answered.
"""

from collections.abc import Callable, Mapping
from typing import Any

import chess

_POINTS = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 0}
_CENTIPAWNS_A_POINT = 100
_WHOLE_BOARD = -1


def rule_based_answer(kind: str, given: str, metadata: Mapping[str, Any]) -> str | None:
    """The answer to a question of type `kind`; None for a type that is not known. `given` is the FEN, and
    after `|` the moves. Raises `ValueError` or `TypeError` if the FEN, a move or the metadata is not
    usable."""
    fen, _, moves = given.partition("|")
    board = chess.Board(fen.strip())
    name = kind.removeprefix("structural_")
    if name.startswith("state_tracking"):
        for uci in moves.split():
            board.push_uci(uci)
        return board.fen()
    if name in _STRUCTURAL:
        square = metadata.get("target_square")
        return _STRUCTURAL[name](board, chess.parse_square(square) if square else _WHOLE_BOARD)
    if kind.startswith("short_tactics"):
        if not any(board.legal_moves):
            raise ValueError(f"no legal move in {fen!r}")
        return max(board.legal_moves, key=lambda move: (_mates(board, move), _gain(board, move))).uci()
    if kind.startswith("position_judgement"):
        points = sum(_POINTS[p.piece_type] * (1 if p.color else -1) for p in board.piece_map().values())
        options: list[int] = metadata.get("options", [0])
        return str(min(options, key=lambda option: abs(option - _CENTIPAWNS_A_POINT * points)))
    return "A" if kind.startswith("semantic") else None


def _mates(board: chess.Board, move: chess.Move) -> bool:
    after = board.copy(stack=False)
    after.push(move)
    return after.is_checkmate()


def _gain(board: chess.Board, move: chess.Move) -> int:
    captured = board.piece_type_at(move.to_square)
    return (_POINTS[captured] if captured else 0) + (_POINTS[move.promotion] if move.promotion else 0)


def piece_title(piece: chess.Piece) -> str:
    """As the benchmark names it: `White King`."""
    return f"{chess.COLOR_NAMES[piece.color].capitalize()} {chess.piece_name(piece.piece_type).capitalize()}"


def _listed(names: list[str]) -> str:
    return ", ".join(sorted(names))


def _arrangement(board: chess.Board, _: chess.Square) -> str:
    kinds = [
        (chess.Piece(kind, colour), sorted(map(chess.square_name, board.pieces(kind, colour))))
        for colour in (chess.WHITE, chess.BLACK)
        for kind in reversed(chess.PIECE_TYPES)
    ]
    return ", ".join(f"{piece_title(piece)}: {squares}" for piece, squares in kinds if squares)


def _legal(board: chess.Board, square: chess.Square) -> str:
    return _listed([m.uci() for m in board.legal_moves if square in (_WHOLE_BOARD, m.from_square)])


def _checks(board: chess.Board, _: chess.Square) -> str:
    return _listed([move.uci() for move in board.legal_moves if board.gives_check(move)])


def _checkers(board: chess.Board, _: chess.Square) -> str:
    pieces = board.piece_map()
    return ", ".join(f"{piece_title(pieces[s])} at {chess.square_name(s)}" for s in board.checkers())


def _protected(board: chess.Board, square: chess.Square) -> str:
    """The squares of own pieces but the king that the piece could recapture on, as if it had the move."""
    mover = board.color_at(square)
    names = []
    for target in board.attacks(square):
        piece = board.piece_at(target)
        if piece is not None and piece.color == mover and piece.piece_type != chess.KING:
            taken = board.copy(stack=False)
            taken.set_piece_at(
                target, chess.Piece(chess.QUEEN if target // 8 in (0, 7) else chess.PAWN, not mover)
            )
            if _can_move(taken, square, target):
                names.append(chess.square_name(target))
    return _listed(names)


def _captured(board: chess.Board, square: chess.Square) -> str:
    targets = [t for t in board.attacks(square) if board.color_at(t) == (not board.color_at(square))]
    return _listed([chess.square_name(t) for t in targets if _can_move(board, square, t)])


def _controlled(board: chess.Board, square: chess.Square) -> str:
    targets = [target for target in board.attacks(square) if board.piece_at(target) is None]
    return _listed([chess.square_name(t) for t in targets if _can_move(board, square, t)])


def _can_move(board: chess.Board, square: int, target: int) -> bool:
    """Whether the piece, if its side had the move, may go to `target` without leaving its king in check."""
    turned = board.copy(stack=False)
    turned.turn = bool(board.color_at(square))
    turned.ep_square = None
    king = turned.king(turned.turn)
    if board.piece_type_at(square) == chess.KING:
        return not turned.is_attacked_by(not turned.turn, target)
    return king is None or target in turned.pin(turned.turn, square)


_STRUCTURAL: Mapping[str, Callable[[chess.Board, chess.Square], str]] = {
    "piece_arrangement": _arrangement,
    "legal_move_piece": _legal,
    "legal_move_all": _legal,
    "check_in_1": _checks,
    "check_detection": _checkers,
    "protect_squares": _protected,
    "capture_squares": _captured,
    "control_squares": _controlled,
}
