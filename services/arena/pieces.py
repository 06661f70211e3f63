"""Which pieces a player moves, beside the engine's best moves and beside a move drawn at random.

The distance of two distributions is the total variation distance: half the sum of the absolute differences of
the shares, 0 for equal and 1 for disjoint ones.
"""

from collections.abc import Mapping, Sequence

import chess
import numpy as np

from services.arena.answers import Answer, Answers
from services.arena.measures import legal, sampled
from services.arena.stats import Bootstrap, Floats, Ratio
from services.arena.tables import Cell, Row, Table
from services.arena.wording import Metric

BEST, RANDOM = "engine's best", "random legal move"
"""The names of the references."""


def piece_table(
    sides: Mapping[str, Sequence[Answers]], best: Sequence[Answers], *, players: Sequence[str], seed: int
) -> Table:
    """The shares of each piece among legal moves, by player, with the distances from the references.

    `best` has the engine's best moves. The shares of a random move are exact, not sampled.
    """
    shares = {name: _of_answers(side) for name, side in sides.items()}
    shares |= {BEST: _of_answers(best), RANDOM: _of_legal_moves(best)}
    bootstrap = Bootstrap(
        {(name, piece): ratio for name, row in shares.items() for piece, ratio in row.items()}, seed=seed
    )
    rows = []
    for piece in chess.PIECE_TYPES:
        metric = Metric(chess.piece_name(piece), chess.piece_name(piece).capitalize(), better="neither")
        rows.append(Row(metric, {name: Cell(bootstrap.estimate((name, piece))) for name in shares}))
    for key, reference in (("best", BEST), ("random", RANDOM)):
        metric = Metric(
            f"distance_to_{key}", f"Distance from {reference}", "total variation", "number", "neither"
        )
        cells = {
            name: Cell(
                bootstrap.combine(
                    _distance, [(side, p) for side in (name, reference) for p in chess.PIECE_TYPES]
                )
            )
            for name in shares
        }
        rows.append(Row(metric, cells))
    return Table("pieces", "Moves by piece", rows, "Shares of the legal moves of each player.")


def _distance(shares: Floats) -> Floats:
    first, second = np.split(shares, 2, axis=1)
    return np.asarray(np.abs(first - second).sum(axis=1) / 2)


def _of_answers(side: Sequence[Answers]) -> dict[int, Ratio]:
    moved = [[_piece(answers.fen, a) for a in sampled(answers) if legal(a)] for answers in side]
    counts = [len(row) for row in moved]
    return {piece: Ratio.of([row.count(piece) for row in moved], counts) for piece in chess.PIECE_TYPES}


def _piece(fen: str, answer: Answer) -> int | None:
    move = answer.verdict.move
    return chess.Board(fen).piece_type_at(chess.parse_square(move.uci[:2])) if move else None


def _of_legal_moves(side: Sequence[Answers]) -> dict[int, Ratio]:
    boards = [chess.Board(answers.fen) for answers in side]
    moved = [[board.piece_type_at(move.from_square) for move in board.legal_moves] for board in boards]
    shares = {p: [row.count(p) / len(row) for row in moved] for p in chess.PIECE_TYPES}
    return {piece: Ratio.of(values, [1] * len(values)) for piece, values in shares.items()}
