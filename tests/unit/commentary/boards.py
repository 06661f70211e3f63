"""Positions of every kind: random games, and some that show what random games seldom do."""

import random
from functools import cache

import chess

RARE = (
    "1r3rk1/5ppp/8/8/8/8/QR3PPP/6K1 b - - 0 1",  # a weak back rank
    "4q3/8/4k3/8/8/8/8/4RK2 b - - 0 1",  # a skewer, and check
    "4k3/8/4p3/p1p1p1p1/P1P1P1P1/4P3/8/4KB2 w - - 0 1",  # fixed pawns
    "4k3/8/p7/P1p1p3/2P1P3/3P1P2/2B5/2K5 w - - 0 1",  # a bad bishop
    "4k3/2b2p2/8/8/8/8/2B2P2/4K3 w - - 0 1",  # opposite bishops
    "4k3/8/1p6/8/2p5/1PN5/8/4K1n1 w - - 0 1",
    "3k4/8/3r4/8/8/5b2/8/3K4 w - - 0 1",  # double check
    "4k3/pp6/8/8/8/8/5PPP/4K3 w - - 0 1",  # majorities
    "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1",  # mate in one
    "6k1/5ppp/8/8/8/8/5PPP/3R2K1 b - - 0 1",  # and threatened
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "4k3/8/8/8/1Pp5/B1P5/NR6/1K6 w - - 0 1",  # pieces without moves
    "r3k2r/pp3ppp/2n5/3pp3/8/2N5/PPP2PPP/R3K2R w KQkq - 0 12",
    "4k3/8/8/3PP3/8/8/8/4K3 w - - 0 1",  # connected passers
    "r5k1/pp3ppp/8/8/2r5/8/PP3PPP/2RR2K1 w - - 0 20",  # one open file, two
    "4k3/4p3/8/4P1n1/8/8/8/4K2B w - - 0 1",
    "4k2b/8/8/4n3/8/2N5/1p6/4K3 w - - 0 1",
)


def walked(rng: random.Random, plies: int = 160) -> chess.Board:
    """A position from a game of random moves that is not over."""
    while True:
        board = chess.Board()
        for _ in range(rng.randint(2, plies)):
            if not any(board.legal_moves):
                break
            board.push(move_of(board, rng, greed=0.35))
        if any(board.legal_moves):
            return board.copy(stack=False)


def move_of(board: chess.Board, rng: random.Random, *, greed: float) -> chess.Move:
    """A random move, a capture or promotion more often than by chance."""
    moves = list(board.legal_moves)
    noisy = [move for move in moves if board.is_capture(move) or move.promotion]
    return rng.choice(noisy if noisy and rng.random() < greed else moves)


@cache
def random_board(seed: int) -> chess.Board:
    """A position of a random game."""
    return walked(random.Random(f"board:{seed}"))


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
