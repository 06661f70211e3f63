"""Finds the moves that an answer names besides its own.

The candidates are the moves in the text before the box (see `notation.named_moves`), or the `M:` field of a
`P:` line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import chess

from rookery.answers import before_answer
from rookery.notation import named_moves
from rookery.rookworld import read_policy_answer


@dataclass(frozen=True, slots=True)
class Candidate:
    """A move that an answer names: UCI. The score is higher for moves that the answer ranks higher."""

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
    moves = named_moves(before_answer(text), board)
    return [Candidate(move.uci, -float(place)) for place, move in enumerate(moves)]


def distinct(candidates: Sequence[Candidate]) -> dict[str, float]:
    """The scores of the different moves, each as named first.

    >>> distinct([Candidate("e2e4", 0.0), Candidate("d2d4", -1.0), Candidate("e2e4", -2.0)])
    {'e2e4': 0.0, 'd2d4': -1.0}
    """
    scores: dict[str, float] = {}
    for candidate in candidates:
        scores.setdefault(candidate.move, candidate.score)
    return scores
