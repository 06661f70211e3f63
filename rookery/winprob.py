"""Turns an engine's score into a win probability: by Lichess's formula, or by the engine's own estimate of
wins, draws and losses.

A loss of 0.1 in win probability matters as much in a won position as in an even one; a loss of 100 centipawns
does not. This module does not use a board.
"""

import math
from dataclasses import dataclass
from typing import Literal

from rookery.errors import EngineFault
from rookery.trace import Evaluation
from rookery.uci import Line

LICHESS_K = 0.00368208
"""Per centipawn. Fitted on 75,000 positions of rapid games at 2300+ Elo (lichess-org/lila, PR 11148)."""

CP_CEILING = 1000
"""Scores are limited to +-1000, and a mate counts as 1000. An estimate is therefore never surer than 97.5%
(scalachess, Cp.CEILING)."""

CHECKMATE = 1.0
"""Win probability of the side that has just given mate: certain, so not limited by `CP_CEILING`."""

DRAW = 0.5
"""Win probability after stalemate, in dead positions and by the 75-move rule."""


@dataclass(frozen=True, slots=True)
class WinModel:
    """Turns an engine's line into the win probability of the side to move, in [0, 1]. A draw counts half.

    `lichess` uses the score and the steepness `k`. `wdl` uses the engine's own estimate for games between
    engines of its strength, which hardly changes beyond two pawns and differs between engine versions.
    """

    name: Literal["lichess", "wdl"] = "lichess"
    k: float = LICHESS_K

    @property
    def id(self) -> str:
        """The model's part of `reward_version`."""
        return f"lichess-k{self.k!r}" if self.name == "lichess" else "wdl"

    def win(self, line: Line) -> float:
        """The win probability of the side to move. Raises `EngineFault` if the model is `wdl`, and the engine
        does not report wins, draws and losses."""
        if self.name == "lichess":
            return win_probability(line.evaluation, k=self.k)
        if line.wdl is None:
            raise EngineFault("the engine does not report wins, draws and losses: set --win-model lichess")
        win, draw, _ = line.wdl
        return (win + draw / 2) / 1000


def win_probability(evaluation: Evaluation, *, k: float = LICHESS_K) -> float:
    """The win probability of the side to move by Lichess's formula, in [0, 1]. A draw counts half.

    >>> win_probability(Evaluation(cp=0))
    0.5
    >>> [round(win_probability(Evaluation(cp=cp)), 3) for cp in (100, 300, 1000, 5000)]
    [0.591, 0.751, 0.975, 0.975]
    >>> win_probability(Evaluation(mate=-3)) == win_probability(Evaluation(cp=-1000))
    True
    """
    cp = evaluation.cp
    if evaluation.mate is not None:
        cp = CP_CEILING if evaluation.mate > 0 else -CP_CEILING
    if cp is None:
        raise ValueError(f"an evaluation without a score: {evaluation!r}")
    return 1.0 / (1.0 + math.exp(-k * max(-CP_CEILING, min(CP_CEILING, cp))))
