"""The engine's scores as a player would put them: who stands how much better, how much a move gives away."""

from enum import Enum, IntEnum

from rookery.trace import Evaluation
from rookery.winprob import CP_CEILING, win_probability

_MATE_CP = 50_000
_BOUNDS_CP = (45, 110, 230, 450)
"""Where each degree of an advantage begins."""

_AS_GOOD_CP = 25


class Standing(IntEnum):
    """How the side stands that a score is for; the negatives mirror the positives."""

    LOST = -4
    MUCH_WORSE = -3
    WORSE = -2
    SLIGHTLY_WORSE = -1
    EQUAL = 0
    SLIGHTLY_BETTER = 1
    BETTER = 2
    MUCH_BETTER = 3
    WINNING = 4


class Loss(Enum):
    """What a move gives away against the best one, by the drop in win chances."""

    NOTHING = "nothing"
    LITTLE = "little"
    SOME = "some"
    MUCH = "much"
    EVERYTHING = "everything"


def centipawns(evaluation: Evaluation) -> int:
    """The score as one number; mates are far beyond the rest, the nearer the farther."""
    if evaluation.mate is not None:
        return _MATE_CP - evaluation.mate if evaluation.mate > 0 else -_MATE_CP - evaluation.mate
    return evaluation.cp or 0


def standing(evaluation: Evaluation) -> Standing:
    """The degree of a score.

    >>> [standing(Evaluation(cp=cp)).name for cp in (60, -300)]
    ['SLIGHTLY_BETTER', 'MUCH_WORSE']
    >>> standing(Evaluation(mate=2)).name
    'WINNING'
    """
    cp = centipawns(evaluation)
    degree = sum(abs(cp) >= bound for bound in _BOUNDS_CP)
    # The bands are half open at the same end on both sides of zero: 45 is slightly better, so is -45 for
    # the other side.
    return Standing(degree if cp > 0 else -degree)


def loss(best: Evaluation, played: Evaluation) -> Loss:
    """What a move with the second score gives away when the first was to be had."""
    one, other = (max(-CP_CEILING, min(CP_CEILING, centipawns(e))) for e in (best, played))
    if one - other <= _AS_GOOD_CP:
        return Loss.NOTHING
    drop = win_probability(best) - win_probability(played)
    for bound, verdict in ((0.06, Loss.LITTLE), (0.15, Loss.SOME), (0.30, Loss.MUCH)):
        if drop < bound:
            return verdict
    return Loss.EVERYTHING
