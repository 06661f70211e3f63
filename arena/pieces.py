"""Which pieces a player moves, compared with the engine's best moves and with random legal moves.

The distance of two distributions is the total variation distance: half the sum of the absolute differences of
the shares, 0 for equal and 1 for disjoint ones.
"""

from collections.abc import Callable, Mapping, Sequence

import chess
import numpy as np

from arena.answers import Answers, PlayerAnswer
from arena.measures import greedy, legal, sampled
from arena.stats import Bootstrap, Estimate, Floats, Ratio
from arena.tables import Cell, Metric, MetricRow, Table

BEST, RANDOM = "engine's best", "random legal move"
"""The names of the references."""


def piece_table(sides: Mapping[str, Sequence[Answers]], best: Sequence[Answers], *, seed: int) -> Table:
    """The shares of each piece among legal moves, by player, with the distances from the references. `best`
    has the engine's best moves. The shares of a random move are exact, not sampled."""
    drawn = {name: _shares_of_answers(side, sampled) for name, side in sides.items()}
    first = {name: _shares_of_answers(side, greedy) for name, side in sides.items()}
    drawn |= {BEST: _shares_of_answers(best, greedy), RANDOM: _shares_of_legal_moves(best)}
    bootstrap = Bootstrap(
        {
            (how, name, piece): ratio
            for how, shares in (("sampled", drawn), ("greedy", first))
            for name, by_piece in shares.items()
            for piece, ratio in by_piece.items()
        },
        seed=seed,
    )

    def distance(how: str, name: str, reference: str) -> Cell:
        keys = [(h, side, p) for h, side in ((how, name), ("sampled", reference)) for p in chess.PIECE_TYPES]
        return Cell(bootstrap.combine(_distance, keys))

    rows = []
    for piece in chess.PIECE_TYPES:
        metric = Metric(chess.piece_name(piece), chess.piece_name(piece).capitalize(), better="neither")
        cells = {name: Cell(bootstrap.estimate(("sampled", name, piece), share=True)) for name in drawn}
        rows.append(MetricRow(metric, cells))
    for key, title, how, reference in (
        ("distance_to_best", f"Distance from {BEST}", "sampled", BEST),
        ("distance_to_best_greedy", f"Distance from {BEST}, greedy", "greedy", BEST),
        ("distance_to_random", f"Distance from {RANDOM}", "sampled", RANDOM),
    ):
        metric = Metric(key, title, "total variation", "number", "neither")
        names = drawn if how == "sampled" else first
        rows.append(MetricRow(metric, {name: distance(how, name, reference) for name in names}))
    return Table(
        "pieces",
        "Moves by piece",
        rows,
        "Shares of the legal moves of each player, sampled unless it says greedy.",
    )


def piece_distance(side: Sequence[Answers], best: Sequence[Answers], *, seed: int) -> Estimate:
    """The distance of a player's legal moves from the engine's best moves, which `best` has."""
    shares = {
        (name, piece): ratio
        for name, answers in (("side", side), ("best", best))
        for piece, ratio in _shares_of_answers(answers, sampled).items()
    }
    return Bootstrap(shares, seed=seed).combine(_distance, list(shares))


def _distance(shares: Floats) -> Floats:
    first, second = np.split(shares, 2, axis=1)
    return np.asarray(np.abs(first - second).sum(axis=1) / 2)


def _shares_of_answers(
    side: Sequence[Answers], of: Callable[[Answers], tuple[PlayerAnswer, ...]]
) -> dict[int, Ratio]:
    moved = [[_piece(answers.fen, a) for a in of(answers) if legal(a)] for answers in side]
    counts = [len(row) for row in moved]
    return {piece: Ratio.of([row.count(piece) for row in moved], counts) for piece in chess.PIECE_TYPES}


def _piece(fen: str, answer: PlayerAnswer) -> int | None:
    move = answer.verdict.move
    return chess.Board(fen).piece_type_at(chess.parse_square(move.uci[:2])) if move else None


def _shares_of_legal_moves(side: Sequence[Answers]) -> dict[int, Ratio]:
    boards = [chess.Board(answers.fen) for answers in side]
    moved = [[board.piece_type_at(move.from_square) for move in board.legal_moves] for board in boards]
    shares = {p: [row.count(p) / len(row) for row in moved] for p in chess.PIECE_TYPES}
    return {piece: Ratio.of(values) for piece, values in shares.items()}
