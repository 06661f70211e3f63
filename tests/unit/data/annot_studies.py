"""Engine answers that no engine gave: any legal moves, any scores. Annotations must be true of them too."""

import random
from functools import cache

import chess

from rookery.trace import Evaluation
from rookery.uci import Line
from services.data.annotate.study import Study


@cache
def random_study(seed: int) -> Study:
    """A position from a random walk with random lines for some of its moves and for the other side."""
    rng = random.Random(f"study:{seed}")
    board = _walked(rng)
    moves = [move.uci() for move in board.legal_moves]
    rng.shuffle(moves)
    firsts = moves[: rng.randint(1, 4)]
    scores = sorted((_score(rng) for _ in firsts), key=_merit)
    lines = [Line(score, _line(board, first, rng)) for score, first in zip(scores, firsts, strict=True)]
    cut = rng.randint(1, len(lines))
    return Study(board.fen(), tuple(lines[:cut]), tuple(lines[cut:]), _threat(board, rng))


def plain_study(board: chess.Board) -> Study:
    """Every legal move as a line of its own, mates first: for claims about a board or a single move."""
    lines = []
    for move in board.legal_moves:
        after = board.copy(stack=False)
        after.push(move)
        score = Evaluation(mate=1) if after.is_checkmate() else Evaluation(cp=0)
        lines.append(Line(score, (move.uci(),)))
    return Study(board.fen(), tuple(sorted(lines, key=lambda line: _merit(line.evaluation))))


def _walked(rng: random.Random) -> chess.Board:
    while True:
        board = chess.Board()
        for _ in range(rng.randint(2, 160)):
            if not any(board.legal_moves):
                break
            board.push(_move(board, rng, greed=0.35))
        if any(board.legal_moves):
            return board.copy(stack=False)


def _move(board: chess.Board, rng: random.Random, *, greed: float) -> chess.Move:
    moves = list(board.legal_moves)
    noisy = [move for move in moves if board.is_capture(move) or move.promotion]
    return rng.choice(noisy if noisy and rng.random() < greed else moves)


def _line(board: chess.Board, first: str, rng: random.Random) -> tuple[str, ...]:
    board = board.copy(stack=False)
    board.push_uci(first)
    moves = [first]
    for _ in range(rng.randint(0, 9)):
        if not any(board.legal_moves):
            break
        move = _move(board, rng, greed=0.5)
        moves.append(move.uci())
        board.push(move)
    return tuple(moves)


def _score(rng: random.Random) -> Evaluation:
    if rng.random() < 0.1:
        return Evaluation(mate=rng.choice((1, 2, 3, -1, -2, -4)))
    return Evaluation(cp=round(rng.gauss(0, 250)))


def _merit(score: Evaluation) -> int:
    if score.mate is not None:
        return -50_000 + score.mate if score.mate > 0 else 50_000 + score.mate
    return -(score.cp or 0)


def _threat(board: chess.Board, rng: random.Random) -> Line | None:
    if board.is_check():
        return None
    passed = board.copy(stack=False)
    passed.push(chess.Move.null())
    moves = [move.uci() for move in passed.legal_moves]
    return Line(_score(rng), _line(passed, rng.choice(moves), rng)) if moves else None


MOVES = (
    ("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", "Rd8#"),
    ("k7/2K5/8/8/8/8/8/1Q6 w - - 0 1", "Qb6"),
    ("4k3/8/8/3n4/8/8/8/3RK3 w - - 0 1", "Rxd5"),
    ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", "exd6"),
    ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a8=N"),
    ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a8=Q+"),
    ("k3r3/8/8/8/8/8/4N3/4K3 b - - 0 1", "Rxe2+"),
    ("r3k3/8/8/3N4/8/8/8/4K3 w - - 0 1", "Nc7+"),
    ("4k3/8/3q4/8/8/8/8/R3K3 w - - 0 1", "Rd1"),
    ("4k3/8/8/2p5/8/8/1P6/4K3 w - - 0 1", "b4"),
    ("3rk3/3p4/8/8/8/8/3P4/R3K3 w - - 0 1", "Rd1"),
    ("3rk3/8/8/8/8/8/8/2K4R w - - 0 1", "Rd1"),
    ("r2q3k/8/8/8/8/8/5P2/1R2Q1K1 w - - 0 1", "Rb8"),
    ("4k3/4n3/8/8/8/8/4Q3/R3K3 w - - 0 1", "Ra7"),
    ("4k3/p7/8/8/8/8/8/1R2K3 w - - 0 1", "Rb7"),
    ("4k3/4n3/8/8/8/8/8/K6R w - - 0 1", "Re1"),
    ("4k3/8/8/8/4N3/8/8/4RK2 w - - 0 1", "Nc5+"),
    ("4k3/8/8/8/8/4N3/8/4RK2 w - - 0 1", "Nd5+"),
    ("3qk3/8/8/8/3B4/8/8/3RK3 w - - 0 1", "Bf6"),
    ("4k3/8/8/8/4r3/4N3/8/4K3 w - - 0 1", "Kd2"),
    ("4k3/8/2p5/3p4/8/2N5/8/3RK3 w - - 0 1", "Rd4"),
    ("4k3/8/4p3/3p4/8/2N5/8/R3K3 w - - 0 1", "Rd1"),
    ("4k1n1/8/8/8/8/5N2/8/Q3K3 w - - 0 1", "Ng5"),
    ("4k3/3q1ppp/8/8/8/8/r4PPP/6K1 w - - 0 1", "h3"),
    ("6k1/5ppp/8/8/8/8/r4PPP/6K1 w - - 0 1", "h3"),
    ("4k3/8/8/8/4r3/8/3B4/4K3 w - - 0 1", "Be3"),
    ("4k3/8/8/8/4r3/8/3B4/4K3 w - - 0 1", "Kd1"),
    ("4k3/8/8/4p3/3N4/8/8/4K3 w - - 0 1", "Nf3"),
    ("4k3/8/8/3r4/8/3P4/8/R3K3 w - - 0 1", "Ra3"),
    ("4k3/3r4/b7/8/8/3P4/4K3/R7 w - - 0 1", "Ra3"),
    ("6k1/5ppp/8/8/8/8/5PPP/r4BKN w - - 0 1", "h3"),
    ("r3k3/8/8/8/1b6/2N5/8/R3K3 w Q - 0 1", "Rxa8+"),
    ("4k3/8/8/8/1b6/2N5/1P6/4K3 w - - 0 1", "b3"),
    ("4k3/8/4p3/8/8/2N5/8/4K3 w - - 0 1", "Nd5"),
    ("4k3/8/8/3n4/4P3/8/5P2/4K3 w - - 0 1", "exd5"),
    ("4k3/8/8/3n4/4P3/8/2PP1P2/4K3 w - - 0 1", "exd5"),
    ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", "O-O"),
    ("4k3/8/8/8/8/8/8/R3K3 w Q - 0 1", "O-O-O"),
    ("r1bqkbnr/pppppppp/2n5/8/8/2N5/PPPPPPPP/R1BQKBNR w KQkq - 0 3", "Nf3"),
    ("r1bqk2r/ppppbppp/2n2n2/8/8/2N1BN2/PPPPQPPP/R3KB1R w KQkq - 0 7", "g3"),
    ("r1bqk2r/ppppbppp/2n2n2/8/8/2N2NP1/PPPPQPBP/R1B1K2R w KQkq - 0 7", "d3"),
    ("r2qk2r/ppppbppp/2n2n2/8/8/2NB1N2/PPP2PPP/R1BQK2R w KQkq - 0 9", "Bg5"),
    ("4k3/8/8/3p4/4P3/8/8/4K3 w - - 0 1", "exd5"),
    ("4k3/8/8/8/8/8/P7/R3K3 w - - 0 1", "Rd1"),
    ("4k3/8/8/8/8/8/P7/Q3K3 w - - 0 1", "Qd4"),
    ("4k3/5p2/8/8/8/8/P7/1R2K3 w - - 0 1", "Rb7"),
    ("4k3/8/8/8/8/3R4/8/R3K3 w - - 0 1", "Rad1"),
    ("4k3/8/8/8/4P3/2N5/8/4K3 w - - 0 1", "Nd5"),
    ("4k3/8/8/3P4/8/8/8/4K3 w - - 0 1", "d6"),
    ("4k3/8/3p4/4P3/8/8/8/4K3 w - - 0 1", "exd6"),
    ("4k3/8/8/8/8/3p4/8/4K3 w - - 0 1", "Kd2"),
    ("4k3/8/8/3P4/8/8/8/R3K3 w - - 0 1", "Rd1"),
    ("4k3/8/8/8/8/8/4P3/4KB2 w - - 0 1", "e4"),
    ("4k3/8/8/8/8/8/8/1N2K3 w - - 0 1", "Nc3"),
    ("4k3/8/8/8/8/8/8/4K3 w - - 0 1", "Kd2"),
    ("8/8/8/8/4k3/8/1K6/8 w - - 0 1", "Kc3"),
    ("4k3/8/5n2/8/8/8/7P/4K3 w - - 0 1", "h3"),
)
"""Moves that show every idea at least once."""
