"""Finds the moves that an answer names besides its own, and compares their order with the engine's.

The candidates are the moves in the text before the box (see `notation.named_moves`), or the `M:` field of a
`P:` line.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import chess
import numpy as np

from rookery.answers import reasoning_of
from rookery.notation import named_moves
from rookery.rookworld import read_policy_answer


@dataclass(frozen=True, slots=True)
class Candidate:
    """A move that an answer names: UCI. The better the answer holds it to be, the higher the score."""

    move: str
    score: float


def candidates_of(text: str, board: chess.Board) -> list[Candidate]:
    """The candidates in the order of the text, with repetitions.

    The scores are the evaluations of a `P:` line, in pawns. In other texts the move named first counts as
    the best: its score is 0, that of the next -1, and so on.

    >>> [c.move for c in candidates_of("<think>e4 or Nf3, not Nf6: e4!</think>", chess.Board())]
    ['e2e4', 'g1f3', 'e2e4']
    """
    line = read_policy_answer(text)
    if line is not None:
        return [Candidate(*pair) for pair in zip(line.moves, line.evals, strict=True)]
    named = named_moves(reasoning_of(text), board)
    return [Candidate(move, -float(place)) for place, move in enumerate(named)]


def distinct(candidates: Sequence[Candidate]) -> dict[str, float]:
    """The scores of the different moves, each as named first.

    >>> distinct([Candidate("e2e4", 0.0), Candidate("d2d4", -1.0), Candidate("e2e4", -2.0)])
    {'e2e4': 0.0, 'd2d4': -1.0}
    """
    scores: dict[str, float] = {}
    for candidate in candidates:
        scores.setdefault(candidate.move, candidate.score)
    return scores


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two lists of values, in [-1, 1]; None if one of them has no two different values.

    >>> kendall_tau([3, 2, 1], [30, 20, 10]), kendall_tau([3, 2, 1], [30, 10, 20]), kendall_tau([1], [1])
    (1.0, 0.3333333333333333, None)
    """
    columns = [np.asarray(values, dtype=np.float64)[:, None] for values in (first, second)]
    signs = [np.sign(column - column.T) for column in columns]
    pairs = math.sqrt(np.abs(signs[0]).sum() * np.abs(signs[1]).sum())
    return float((signs[0] * signs[1]).sum()) / pairs if pairs else None


def argsort_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau of the two argsorts, as google-deepmind/searchless_chess reports it.

    It compares the permutations that sort the lists, not the ranks, so from three values on it differs.

    >>> argsort_tau([2, 3, 1], [1, 3, 2]), kendall_tau([2, 3, 1], [1, 3, 2])
    (-1.0, 0.3333333333333333)
    """
    return kendall_tau(*(list(np.argsort(values, kind="stable")) for values in (first, second)))
