"""Engine answers that no engine gave: any legal moves, any scores. Texts must be true of them too."""

import random
from functools import cache

import chess

from commentary import Score, Study, StudyLine
from tests.unit.commentary.boards import move_of, walked


@cache
def random_study(seed: int) -> Study:
    """A position from a random walk with random lines for some of its moves and for the other side."""
    rng = random.Random(f"study:{seed}")
    board = walked(rng)
    moves = [move.uci() for move in board.legal_moves]
    rng.shuffle(moves)
    firsts = moves[: rng.randint(1, 4)]
    scores = sorted((_score(rng) for _ in firsts), key=lambda score: -score.value)
    lines = [StudyLine(score, _moves(board, first, rng)) for score, first in zip(scores, firsts, strict=True)]
    cut = rng.randint(1, len(lines))
    return Study(board.fen(), tuple(lines[:cut]), tuple(lines[cut:]), _threat(board, rng))


def _moves(board: chess.Board, first: str, rng: random.Random) -> tuple[str, ...]:
    board = board.copy(stack=False)
    board.push_uci(first)
    moves = [first]
    for _ in range(rng.randint(0, 9)):
        if not any(board.legal_moves):
            break
        move = move_of(board, rng, greed=0.5)
        moves.append(move.uci())
        board.push(move)
    return tuple(moves)


def _score(rng: random.Random) -> Score:
    if rng.random() < 0.1:
        return Score(mate=rng.choice((1, 2, 3, -1, -2, -4)))
    return Score(cp=round(rng.gauss(0, 250)))


def _threat(board: chess.Board, rng: random.Random) -> StudyLine | None:
    if board.is_check():
        return None
    passed = board.copy(stack=False)
    passed.push(chess.Move.null())
    moves = [move.uci() for move in passed.legal_moves]
    return StudyLine(_score(rng), _moves(passed, rng.choice(moves), rng)) if moves else None
