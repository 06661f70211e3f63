r"""Asks what is on the board and what the rules allow there. The answers are in `\boxed{}`.

They have the forms of the structural questions of ChessQA (CSSLab/chessqa-benchmark), such as lists in
alphabetical order, separated by ", ", and `White Queen at e5`. Positions and words are not taken from it.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

import chess

from chess_datasets.tasks.example import Example
from chess_datasets.tasks.rookworld import illegal_move
from rookery.prompt import Notation, ask, written
from rookery.trace import Position

BOARD = "board"
"""The task that mixes all kinds of questions."""

Question = tuple[dict[str, str], str]
"""The words that a question leaves open, and its answer."""

MOST_MOVES = 5
"""Most moves of a question about the position after them."""

_POINTS = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}


def board_question(position: Position, *, seed: int, form: str, notation: Notation) -> Example:
    """A question of a random kind. It depends only on the seed and the position. `form` is a key of
    `formats.FORMATS`, `notation` that of the moves that the answer lists."""
    rng = random.Random(f"{seed}:{position.id}")
    kind = rng.choice(sorted(KINDS))
    about, answer = KINDS[kind](chess.Board(position.fen), rng, notation)
    words = {"notation": notation.upper(), **about}
    messages = ask(position, task=f"{BOARD}-{kind}", form=form, **words).messages
    move = about.get("move", "")
    return Example(position.id, f"{BOARD}-{kind}", position.fen, messages, f"\\boxed{{{answer}}}", move=move)


def _pieces(board: chess.Board, _rng: random.Random, _notation: Notation) -> Question:
    kinds = [
        (chess.Piece(kind, colour), sorted(map(chess.square_name, board.pieces(kind, colour))))
        for colour in (chess.WHITE, chess.BLACK)
        for kind in reversed(chess.PIECE_TYPES)
    ]
    return {}, ", ".join(f"{_name(piece)}: {squares}" for piece, squares in kinds if squares)


def _square(board: chess.Board, rng: random.Random, _notation: Notation) -> Question:
    occupied = chess.SquareSet(board.occupied if rng.random() < 0.5 else ~board.occupied & chess.BB_ALL)
    square = rng.choice(list(occupied))
    piece = board.piece_at(square)
    return {"square": chess.square_name(square)}, _name(piece) if piece else "empty"


def _moves(board: chess.Board, rng: random.Random, notation: Notation) -> Question:
    square, about = _mover(board, rng)
    return about, _listed(written(board, m, notation) for m in board.legal_moves if m.from_square == square)


def _targets(board: chess.Board, rng: random.Random, _notation: Notation, *, is_occupied: bool) -> Question:
    square, about = _mover(board, rng)
    targets = {move.to_square for move in board.legal_moves if move.from_square == square}
    return about, _names(target for target in targets if bool(board.piece_at(target)) == is_occupied)


def _protected(board: chess.Board, rng: random.Random, _notation: Notation) -> Question:
    square, about = _piece(board, rng, board.occupied & ~board.kings)
    colour = bool(board.color_at(square))
    reach = board.attacks(square) & board.pin(colour, square)
    return about, _names(reach & board.occupied_co[colour] & ~board.kings)


def _check(board: chess.Board, _rng: random.Random, _notation: Notation) -> Question:
    pieces = ((board.piece_at(square), chess.square_name(square)) for square in board.checkers())
    return {}, _listed(f"{_name(piece)} at {square}" for piece, square in pieces if piece)


def _checks(board: chess.Board, _rng: random.Random, notation: Notation) -> Question:
    return {}, _listed(written(board, m, notation) for m in board.legal_moves if board.gives_check(m))


def _legal(board: chess.Board, rng: random.Random, _notation: Notation) -> Question:
    if rng.random() < 0.5:
        return {"move": illegal_move(board, rng)}, "no"
    return {"move": rng.choice(list(board.legal_moves)).uci()}, "yes"


def _state(board: chess.Board, rng: random.Random, _notation: Notation) -> Question:
    for _ in range(rng.randint(1, MOST_MOVES)):
        if moves := list(board.legal_moves):
            board.push(rng.choice(moves))
    return {"moves": " ".join(move.uci() for move in board.move_stack)}, board.fen()


def _material(board: chess.Board, _rng: random.Random, _notation: Notation) -> Question:
    white, black = (
        sum(points * len(board.pieces(kind, colour)) for kind, points in _POINTS.items())
        for colour in (chess.WHITE, chess.BLACK)
    )
    return {}, f"White {white}, Black {black}"


KINDS: Mapping[str, Callable[[chess.Board, random.Random, Notation], Question]] = MappingProxyType(
    {
        "pieces": _pieces,
        "square": _square,
        "moves": _moves,
        "captures": partial(_targets, is_occupied=True),
        "empty": partial(_targets, is_occupied=False),
        "protected": _protected,
        "check": _check,
        "checks": _checks,
        "legal": _legal,
        "state": _state,
        "material": _material,
    }
)
"""The kinds of questions: what each asks about, and the answer."""


def _mover(board: chess.Board, rng: random.Random) -> tuple[chess.Square, dict[str, str]]:
    """A piece with a legal move, mostly, or any piece of the side to move."""
    mobile = chess.SquareSet(move.from_square for move in board.legal_moves)
    return _piece(board, rng, int(mobile) if rng.random() < 0.9 else board.occupied_co[board.turn])


def _piece(
    board: chess.Board, rng: random.Random, choices: chess.Bitboard
) -> tuple[chess.Square, dict[str, str]]:
    square, piece = rng.choice(sorted(board.piece_map(mask=choices).items()))
    return square, {"piece": _name(piece), "square": chess.square_name(square)}


def _name(piece: chess.Piece) -> str:
    return f"{'White' if piece.color else 'Black'} {chess.piece_name(piece.piece_type).title()}"


def _listed(items: Iterable[str]) -> str:
    return ", ".join(sorted(items)) or "none"


def _names(squares: Iterable[chess.Square]) -> str:
    return _listed(set(map(chess.square_name, squares)))
