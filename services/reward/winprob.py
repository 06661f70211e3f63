"""From an engine's score to a win probability, by the formula Lichess draws its graphs with.

Differences of win probabilities mean the same everywhere on the scale; differences of centipawns do
not. Nothing here knows an engine: scores come in as `Evaluation`.
"""

import math

from rookery.trace import Evaluation

LICHESS_K = 0.00368208
"""Per centipawn; fitted on 75,000 positions of rapid games at 2300+ Elo (lichess-org/lila, PR 11148)."""

CP_CEILING = 1000
"""Scores beyond it count as it, mate too: 97.5% is as sure as an evaluation gets (scalachess, Cp.CEILING)."""

CHECKMATE = 1.0
"""Of whoever has just delivered it: decided by the rules, not by an estimate."""

DRAW = 0.5
"""Stalemate, dead positions and the 75-move rule, whatever was at stake before."""


def win_probability(evaluation: Evaluation, *, k: float = LICHESS_K) -> float:
    """Chance in [0, 1] that the side to move wins, a draw counting half.

    >>> win_probability(Evaluation(cp=0))
    0.5
    >>> [round(win_probability(Evaluation(cp=cp)), 3) for cp in (100, 300, 1000, 5000)]
    [0.591, 0.751, 0.975, 0.975]
    >>> win_probability(Evaluation(mate=-3)) == win_probability(Evaluation(cp=-1000))
    True
    """
    return 1.0 / (1.0 + math.exp(-k * _ceiled_cp(evaluation)))


def _ceiled_cp(evaluation: Evaluation) -> int:
    if evaluation.mate is not None:
        return CP_CEILING if evaluation.mate > 0 else -CP_CEILING
    if evaluation.cp is None:
        raise ValueError(f"an evaluation without a score: {evaluation!r}")
    return max(-CP_CEILING, min(CP_CEILING, evaluation.cp))
