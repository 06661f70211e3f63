"""Plans how many games are needed to answer a question.

A game between players d Elo apart scores s = 1 / (1 + 10^(-d/400)) on average, with variance
s (1 - s) - draws / 4. Pairs of independent games have half of that. Balanced openings with both colours need
fewer games in practice, because their results within a pair vary less.
"""

import math
from dataclasses import dataclass

from rookery.errors import InvalidInput
from services.arena.strength.pentanomial import ELO, Z95, expected_score
from services.arena.strength.sprt import Sprt


@dataclass(frozen=True, slots=True)
class SprtCost:
    """What a sequential test costs if the truth is `elo`: the chance to accept H1, and the mean of games."""

    elo: float
    accepts_h1: float
    games: int


def games_for_margin(elo: float, margin: float, *, draws: float) -> int:
    """Games until the 95% interval of players `elo` apart is `margin` wide on either side. An even number.

    >>> games_for_margin(0, 20, draws=0), games_for_margin(0, 10, draws=0)
    (1160, 4638)
    """
    score = expected_score(elo)
    slope = score * (1 - score) / ELO
    return 2 * math.ceil((Z95 / (slope * margin)) ** 2 * _pair_variance(elo, draws))


def sprt_cost(test: Sprt, elo: float, *, draws: float) -> SprtCost:
    """The expected course of `test` if the difference is `elo`, in the test's own units.

    By Wald's approximation: the ratio is a Brownian motion with drift, and stops exactly at a bound.
    """
    lower, upper = test.bounds
    sigma = math.sqrt(_pair_variance(0.0 if test.model == "normalized" else elo, draws))

    def t(value: float) -> float:
        if test.model == "normalized":
            return math.sqrt(2) * value / (2 * ELO)
        return (expected_score(value) - 0.5) / sigma

    t0, t1, now = t(test.elo0), t(test.elo1), t(elo)
    drift, variance = (t1 - t0) * (now - (t0 + t1) / 2), (t1 - t0) ** 2
    tilt = -2 * drift / variance
    if abs(tilt) < 1e-6:
        accepts, pairs = -lower / (upper - lower), -lower * upper / variance
    else:
        accepts = math.expm1(tilt * lower) / (math.exp(tilt * lower) - math.exp(tilt * upper))
        pairs = (upper * accepts + lower * (1 - accepts)) / drift
    return SprtCost(elo, accepts, 2 * math.ceil(pairs))


def plan(elo: float, margin: float, draws: float, alpha: float, beta: float) -> str:
    """The answers for `python -m services.arena plan`, as text.

    Raises:
        InvalidInput: so many draws are impossible at this difference.
    """
    try:
        games = games_for_margin(elo, margin, draws=draws)
        lines = [f"{elo:+g} Elo, {draws:.0%} draws:", f"  95% interval of +-{margin:g} Elo: {games:,} games"]
        test = Sprt(min(0.0, elo), max(0.0, elo), alpha, beta, "logistic")
        for truth in (test.elo0, (test.elo0 + test.elo1) / 2, test.elo1):
            cost = sprt_cost(test, truth, draws=draws)
            lines.append(
                f"  --sprt {test.elo0:g},{test.elo1:g} --elo-model logistic, if it is {truth:+g}: "
                f"about {cost.games:,} games, accepted with {cost.accepts_h1:.0%}"
            )
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    return "\n".join(lines) + "\n"


def _pair_variance(elo: float, draws: float) -> float:
    score = expected_score(elo)
    most = 2 * min(score, 1 - score)
    if not 0 <= draws <= most:
        raise ValueError(f"a share of draws of {draws} at {elo:+g} Elo: between 0 and {most:.3f}")
    return (score * (1 - score) - draws / 4) / 2
