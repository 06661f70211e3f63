"""What words mean on a board, square by square: the truth that claims are held against.

Written on its own, from the definitions of the concepts, with python-chess
and loops over squares: slow, plain, and without a line shared with the detectors.
"""

from collections.abc import Callable, Iterable

import chess

WORTH = {"pawn": 1, "knight": 3, "bishop": 3, "rook": 5, "queen": 9, "king": 100}


def name_at(board: chess.Board, square: chess.Square) -> str:
    """The name of the piece on a square."""
    kind = board.piece_type_at(square)
    return chess.piece_name(kind) if kind else ""


def worth_at(board: chess.Board, square: chess.Square) -> int:
    """The value in pawns of the piece on a square."""
    return WORTH.get(name_at(board, square), 0)


def total(board: chess.Board, side: chess.Color) -> int:
    """The value of a side's pieces and pawns."""
    return sum(
        WORTH[chess.piece_name(piece.piece_type)]
        for piece in board.piece_map().values()
        if piece.color == side and piece.piece_type != chess.KING
    )


def count(board: chess.Board, side: chess.Color, *names: str) -> int:
    """How many pieces of some names a side has."""
    return sum(
        piece.color == side and chess.piece_name(piece.piece_type) in names
        for piece in board.piece_map().values()
    )


def all_of(board: chess.Board, side: chess.Color, *names: str) -> list[chess.Square]:
    """The squares of a side's pieces of some names."""
    return [
        square
        for square, piece in board.piece_map().items()
        if piece.color == side and chess.piece_name(piece.piece_type) in names
    ]


def attackers(board: chess.Board, square: chess.Square) -> set[chess.Square]:
    """Enemy pieces that attack what stands on a square."""
    side = board.color_at(square)
    return set() if side is None else set(board.attackers(not side, square))


def defenders(board: chess.Board, square: chess.Square) -> set[chess.Square]:
    """Own pieces that defend what stands on a square."""
    side = board.color_at(square)
    return set() if side is None else set(board.attackers(side, square))


def attacks(board: chess.Board, attacker: chess.Square, target: chess.Square) -> bool:
    """Whether the piece attacks an enemy piece."""
    return attacker in attackers(board, target)


def defends(board: chess.Board, defender: chess.Square, ward: chess.Square) -> bool:
    """Whether the piece defends a piece of its own side."""
    return defender in defenders(board, ward)


def in_line(board: chess.Board, first: chess.Square, second: chess.Square, third: chess.Square) -> bool:
    """Whether three pieces follow each other on a line that the first one moves on."""
    if second not in chess.SquareSet(chess.between(first, third)):
        return False
    gaps = chess.SquareSet(chess.between(first, third))
    empty = all(board.piece_at(square) is None for square in gaps if square != second)
    return empty and second in board.attacks(first) and board.piece_at(third) is not None


def pins(board: chess.Board, pinner: chess.Square, pinned: chess.Square, behind: chess.Square) -> bool:
    """A line piece attacks `pinned`; behind it is its king, or something worth more than both."""
    if not attacks(board, pinner, pinned) or board.color_at(pinned) != board.color_at(behind):
        return False
    if name_at(board, pinner) not in ("bishop", "rook", "queen") or not in_line(
        board, pinner, pinned, behind
    ):
        return False
    prize = worth_at(board, behind)
    return prize > worth_at(board, pinned) and prize > worth_at(board, pinner)


def is_pinned(board: chess.Board, square: chess.Square) -> bool:
    """Whether anything pins it to anything."""
    side = board.color_at(square)
    return any(
        pins(board, pinner, square, behind)
        for pinner in attackers(board, square)
        for behind, piece in board.piece_map().items()
        if piece.color == side and behind != square
    )


def forks(board: chess.Board, attacker: chess.Square, targets: Iterable[chess.Square]) -> bool:
    """Whether the piece attacks all: each the king, worth more than it, or undefended; two or more."""
    value = worth_at(board, attacker)
    prey = list(targets)
    return len(set(prey)) >= 2 and all(
        attacks(board, attacker, target) and (worth_at(board, target) > value or not defenders(board, target))
        for target in prey
    )


def steps_to_go(square: chess.Square, side: chess.Color) -> int:
    """Moves of one rank that a pawn is away from promotion."""
    return 7 - chess.square_rank(square) if side == chess.WHITE else chess.square_rank(square)


def ahead_of(square: chess.Square, side: chess.Color) -> list[chess.Square]:
    """The squares before a pawn, nearest first."""
    file, rank = chess.square_file(square), chess.square_rank(square)
    ranks = range(rank + 1, 8) if side == chess.WHITE else range(rank - 1, -1, -1)
    return [chess.square(file, r) for r in ranks]


def is_dark(square: chess.Square) -> bool:
    """Whether the square is a dark one."""
    return (chess.square_file(square) + chess.square_rank(square)) % 2 == 0


CENTRE = frozenset({chess.D4, chess.E4, chess.D5, chess.E5})


def is_central(square: chess.Square) -> bool:
    """Whether the square is one of the sixteen in the middle."""
    return 2 <= chess.square_file(square) <= 5 and 2 <= chess.square_rank(square) <= 5


def is_pawn(board: chess.Board, square: chess.Square) -> bool:
    """Whether a pawn stands there."""
    return name_at(board, square) == "pawn"


def is_passed(board: chess.Board, square: chess.Square) -> bool:
    """Whether it is a pawn without enemy pawns before it on three files, nor own pawns on its own file."""
    side = board.color_at(square)
    if side is None or not is_pawn(board, square):
        return False
    pawns = {colour: all_of(board, colour, "pawn") for colour in chess.COLORS}
    front = {chess.square_rank(s) for s in ahead_of(square, side)}
    file = chess.square_file(square)
    is_guarded = any(
        abs(chess.square_file(p) - file) <= 1 and chess.square_rank(p) in front for p in pawns[not side]
    )
    is_blocked = any(chess.square_file(p) == file and chess.square_rank(p) in front for p in pawns[side])
    return not is_guarded and not is_blocked


def files_beside(square: chess.Square) -> set[int]:
    """The neighbouring files."""
    file = chess.square_file(square)
    return {f for f in (file - 1, file + 1) if 0 <= f <= 7}


def is_isolated(board: chess.Board, square: chess.Square) -> bool:
    """Whether it is a pawn without own pawns on the neighbouring files."""
    side = board.color_at(square)
    if side is None or not is_pawn(board, square):
        return False
    return not any(chess.square_file(p) in files_beside(square) for p in all_of(board, side, "pawn"))


def is_doubled(board: chess.Board, square: chess.Square) -> bool:
    """Whether it is a pawn with another own pawn on its file."""
    side = board.color_at(square)
    if side is None or not is_pawn(board, square):
        return False
    file = chess.square_file(square)
    return sum(chess.square_file(p) == file for p in all_of(board, side, "pawn")) > 1


def is_backward(board: chess.Board, square: chess.Square) -> bool:
    """Whether it is a pawn whose neighbours are all further on, before a square that a pawn guards, on which
    no pawn stands."""
    side = board.color_at(square)
    if side is None or not is_pawn(board, square):
        return False
    beside = [p for p in all_of(board, side, "pawn") if chess.square_file(p) in files_beside(square)]
    rest = steps_to_go(square, side)
    stop = ahead_of(square, side)[0]
    guards = [p for p in board.attackers(not side, stop) if is_pawn(board, p)]
    behind_all = bool(beside) and all(steps_to_go(p, side) < rest for p in beside)
    return behind_all and not is_pawn(board, stop) and bool(guards)


def pawns_on(board: chess.Board, file: int, side: chess.Color) -> list[chess.Square]:
    """A side's pawns on a file."""
    return [square for square in all_of(board, side, "pawn") if chess.square_file(square) == file]


def is_open(board: chess.Board, file: int) -> bool:
    """Whether no pawn is on the file."""
    return not pawns_on(board, file, chess.WHITE) and not pawns_on(board, file, chess.BLACK)


def is_half_open(board: chess.Board, file: int, side: chess.Color) -> bool:
    """Whether the file has no pawn of `side`, but one of the other side."""
    return not pawns_on(board, file, side) and bool(pawns_on(board, file, not side))


def mates_on(board: chess.Board) -> set[chess.Move]:
    """Moves that mate at once."""
    moves = set()
    for move in board.legal_moves:
        after = board.copy(stack=False)
        after.push(move)
        if after.is_checkmate():
            moves.add(move)
    return moves


def other_turn(board: chess.Board) -> chess.Board | None:
    """The board with the other side to move; None in check."""
    if board.is_check():
        return None
    after = board.copy(stack=False)
    after.push(chess.Move.null())
    return after


def hangs(board: chess.Board, square: chess.Square) -> bool:
    """Whether it is attacked and nothing defends it."""
    return bool(attackers(board, square)) and not defenders(board, square)


IS: dict[str, Callable[[chess.Board, chess.Square], bool]] = {
    "": lambda board, square: True,
    "pinned": is_pinned,
    "undefended": lambda board, square: not defenders(board, square),
    "loose": lambda board, square: not defenders(board, square),
    "hanging": hangs,
    "isolated": is_isolated,
    "backward": is_backward,
    "passed": is_passed,
    "doubled": is_doubled,
}
"""What an adjective says of the piece on a square."""


def captured(board: chess.Board, move: chess.Move) -> chess.Square | None:
    """Where the piece stood that a move takes."""
    if not board.is_capture(move):
        return None
    if board.is_en_passant(move):
        return chess.square(chess.square_file(move.to_square), chess.square_rank(move.from_square))
    return move.to_square


def castling_wings(board: chess.Board, side: chess.Color) -> set[str]:
    """Where a side may still castle, by the position's FEN."""
    rights = board.fen().split()[2]
    wings = {"kingside": "K" if side else "k", "queenside": "Q" if side else "q"}
    return {wing for wing, letter in wings.items() if letter in rights}


def castling_now(board: chess.Board, side: chess.Color) -> set[str]:
    """Where a side could castle at once, if it had the move, also while the other side is in check."""
    view = board.copy(stack=False)
    view.turn = side
    moves = view.generate_castling_moves()
    return {"kingside" if move.to_square > move.from_square else "queenside" for move in moves}
