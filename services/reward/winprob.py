"""From an engine's score to a win probability, by the formula Lichess draws its graphs with or by the
engine's own count of wins, draws and losses.

Differences of win probabilities mean the same everywhere on the scale; differences of centipawns do
not. Nothing here knows a board.
"""

import math
from dataclasses import dataclass
from typing import Literal

from rookery.errors import EngineFault
from rookery.trace import Evaluation
from rookery.uci import Line

LICHESS_K = 0.00368208
"""Per centipawn; fitted on 75,000 positions of rapid games at 2300+ Elo (lichess-org/lila, PR 11148)."""

CP_CEILING = 1000
"""Scores beyond it count as it, mate too: 97.5% is as sure as an evaluation gets (scalachess, Cp.CEILING)."""

CHECKMATE = 1.0
"""Of whoever has just delivered it: decided by the rules, not by an estimate."""

DRAW = 0.5
"""Stalemate, dead positions and the 75-move rule, whatever was at stake before."""


@dataclass(frozen=True, slots=True)
class WinModel:
    """How an engine's line becomes a chance in [0, 1] that the side to move wins, a draw counting half.

    `lichess` takes the score and the steepness `k`; `wdl` takes what the engine itself expects of games
    between its equals, which is flat beyond two pawns and changes with the engine's version.
    """

    name: Literal["lichess", "wdl"] = "lichess"
    k: float = LICHESS_K

    @property
    def id(self) -> str:
        """As it stands in `reward_version`."""
        return f"lichess-k{self.k!r}" if self.name == "lichess" else "wdl"

    def win(self, line: Line) -> float:
        """Of the side to move.

        Raises:
            EngineFault: `wdl` of an engine that does not give it.
        """
        if self.name == "lichess":
            return win_probability(line.evaluation, k=self.k)
        if line.wdl is None:
            raise EngineFault("the engine tells no wins, draws and losses: set --win-model lichess")
        win, draw, _ = line.wdl
        return (win + draw / 2) / 1000


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
