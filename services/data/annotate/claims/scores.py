"""The engine's scores, as far as claims need them: bands of an advantage, the value of a candidate."""

from dataclasses import dataclass

import chess

from rookery.trace import Evaluation
from services.data.annotate.claims.scene import Scene, Unresolved
from services.data.annotate.claims.token import Token

BANDS = {
    "winning": (450, 100_000),
    "much better": (230, 450),
    "better": (110, 230),
    "slightly better": (45, 110),
    "equal": (-45, 45),
}
"""From here up to there, the upper end left out."""

CEILING = 1000
"""Scores beyond it, mates too, are as good as each other when moves are compared."""

AS_GOOD = 30
"""Centipawns within which two moves are called equally good."""


@dataclass(frozen=True, slots=True)
class Score:
    """A score for one side, mates beyond all others."""

    cp: int

    @classmethod
    def of(cls, evaluation: Evaluation) -> "Score":
        if evaluation.mate is not None:
            return cls(50_000 if evaluation.mate > 0 else -50_000)
        return cls(evaluation.cp or 0)

    def within(self, *names: str) -> bool:
        return any(BANDS[name][0] <= self.cp < BANDS[name][1] for name in names)


def score_for(scene: Scene, side: chess.Color) -> Score:
    """The engine's score of what is spoken of, as `side` sees it."""
    line = scene.evidence()
    mover = scene.start.turn
    score = Score.of(line.evaluation)
    return score if side == mover else Score(-score.cp)


def value_of(scene: Scene, move: Token) -> int:
    """The score of a candidate for the mover, no higher or lower than the ceiling."""
    line = scene.study.line_of(scene.candidate(move).uci())
    if line is None:
        raise Unresolved(f"{move.words}: no line")
    return max(-CEILING, min(CEILING, Score.of(line.evaluation).cp))


def best_value(scene: Scene) -> int:
    """The same of the best move."""
    return max(-CEILING, min(CEILING, Score.of(scene.study.best.evaluation).cp))
