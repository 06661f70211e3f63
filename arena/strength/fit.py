"""Elo ratings of all players of a tournament at once, with some held at known values.

Ratings maximise the likelihood of the results under E = 1 / (1 + 10^(-d/400)), a draw being half a win, as
in Ordo and BayesElo. Colours are balanced by the schedule, so there is no term for White. The
errors come from tournaments simulated at the fitted ratings: the same games, with the same share of draws
among equals, fitted again.

A rating exists only if points went in both directions, if need be through others, between a player and the
anchors (Ford 1957). A player that won or lost everything gets a one-sided bound instead.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arena.strength.pentanomial import ELO, Elo

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SIMULATIONS = 1000
_ROUNDS = 60
_LARGEST_STEP = 1.0
_RIDGE = 1e-9
_INFINITE = 10.0
"""A simulated rating this far from the fitted one, in units of `ELO`, is that of a player who won or lost
everything."""
_LOWEST, _HIGHEST = -6000.0, 6000.0


@dataclass(frozen=True, slots=True)
class Rating:
    """A player's rating. An anchor's interval is its value. `score` is the mean score of a game, 0 to 1."""

    name: str
    elo: Elo
    anchor: bool
    games: int
    score: float


@dataclass(frozen=True, slots=True)
class Ratings:
    """All players, the strongest first. `superiority[a][b]` is the share of simulated tournaments in which a
    was rated above b: the likelihood that a is stronger."""

    players: tuple[Rating, ...]
    superiority: Mapping[str, Mapping[str, float]]


def fit(
    results: Iterable[tuple[str, str, float]],
    *,
    anchors: Mapping[str, float] | None = None,
    simulations: int = SIMULATIONS,
    seed: int = 0,
) -> Ratings:
    """Fits the ratings to `results`: one player, the other, the first one's score.

    Without anchors that played, the first player of the first result is held at 0.

    >>> ratings = fit([("a", "b", 1.0)] * 3 + [("a", "b", 0.0)], anchors={"b": 1000})
    >>> ratings.players[0].name, round(ratings.players[0].elo.value)
    ('a', 1191)
    """
    results = list(results)
    names = list(dict.fromkeys(name for a, b, _ in results for name in (a, b)))
    index = {name: i for i, name in enumerate(names)}
    size = len(names)
    scores, draws = np.zeros((size, size)), 0
    for a, b, score in results:
        scores[index[a], index[b]] += score
        scores[index[b], index[a]] += 1 - score
        draws += score == 0.5
    games = scores + scores.T
    held = {name: elo for name, elo in (anchors or {}).items() if name in index} or dict.fromkeys(
        names[:1], 0.0
    )
    free = np.array([name not in held for name in names])
    start = np.array([held.get(name, 0.0) for name in names]) / ELO
    above, below = _unbounded(scores, ~free)
    rated = ~(above | below)
    among = np.outer(rated, rated)
    fitted = _maximised(scores * among, games * among, start, free & rated)
    drawn = _simulated(fitted, games * among, draws, free & rated, count=simulations, seed=seed)

    def elo(i: int) -> Elo:
        if not rated[i]:
            return _bound(games[i] * rated, fitted, above=bool(above[i]), below=bool(below[i]))
        return _interval(float(fitted[i]), drawn[:, i])

    players = [
        Rating(name, elo(i), name in held, round(games[i].sum()), float(scores[i].sum() / games[i].sum()))
        for i, name in enumerate(names)
    ]
    superiority = {
        a: {
            b: float(((drawn[:, i] > drawn[:, j]) + 0.5 * (drawn[:, i] == drawn[:, j])).mean())
            for j, b in enumerate(names)
            if i != j and rated[j]
        }
        for i, a in enumerate(names)
        if rated[i]
    }
    return Ratings(tuple(sorted(players, key=_strength, reverse=True)), superiority)


def _maximised(scores: Floats, games: Floats, start: Floats, free: Bools) -> Floats:
    """The most likely ratings, [..., players], by Newton's method. `scores` and `games` are [..., p, p]."""
    ratings = np.broadcast_to(start, scores.shape[:-1]).copy()
    ridge = _RIDGE * np.eye(int(free.sum()))
    for _ in range(_ROUNDS if free.any() else 0):
        expected = 1 / (1 + np.exp(ratings[..., None, :] - ratings[..., :, None]))
        slope = (scores - games * expected).sum(axis=-1)[..., free]
        weight = games * expected * (1 - expected)
        curvature = np.einsum("...ij,jk->...jk", weight, np.eye(len(start))) - weight
        step = np.linalg.solve(curvature[..., free, :][..., :, free] + ridge, slope[..., None])[..., 0]
        ratings[..., free] += np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        if np.abs(step).max() < 1e-8:
            break
    return ratings


def _simulated(fitted: Floats, games: Floats, draws: int, free: Bools, *, count: int, seed: int) -> Floats:
    """The ratings fitted to `count` simulated tournaments, [count, players]."""
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(np.triu(games))
    played = games[rows, columns].astype(np.int64)
    expected = 1 / (1 + np.exp(fitted[columns] - fitted[rows]))
    even = 4 * expected * (1 - expected)
    rate = min(1.0, draws / max(1e-9, float((played * even).sum())))
    drawn = np.minimum(rate * even, 2 * np.minimum(expected, 1 - expected))
    shares = np.stack([expected - drawn / 2, drawn, 1 - expected - drawn / 2], axis=-1).clip(0, 1)
    outcomes = rng.multinomial(played, shares, size=(count, len(played)))
    scores = np.zeros((count, *games.shape))
    scores[:, rows, columns] = outcomes[..., 0] + outcomes[..., 1] / 2
    scores[:, columns, rows] = outcomes[..., 2] + outcomes[..., 1] / 2
    ratings = _maximised(scores, games, fitted, free)
    ratings[ratings - fitted > _INFINITE] = np.inf
    ratings[fitted - ratings > _INFINITE] = -np.inf
    return ratings


def _unbounded(scores: Floats, held: Bools) -> tuple[Bools, Bools]:
    """The players without an upper bound, and those without a lower one. A player has no upper bound if no
    points went from them to an anchor, be it through others."""
    takes = (scores > 0) | np.outer(held, held) | np.eye(len(held), dtype=bool)
    for _ in range(len(held)):
        takes = takes @ takes
    return ~takes[held].any(axis=0), ~takes[:, held].any(axis=1)


def _bound(games: Floats, ratings: Floats, *, above: bool, below: bool) -> Elo:
    """The one-sided 95% bound of a player who won, or lost, all `games` against the rated players. Up to it,
    the probability of so many wins in a row is below 5%. A draw less is not counted as likely."""
    if above == below or not games.sum():
        return Elo(None, None, None)
    low, high = _LOWEST, _HIGHEST
    for _ in range(60):
        middle = (low + high) / 2
        lead = (middle / ELO - ratings) * (1 if above else -1)
        probable = -(games * np.logaddexp(0, -lead)).sum() > math.log(0.05)
        low, high = (low, middle) if probable == above else (middle, high)
    return Elo(None, low, None) if above else Elo(None, None, high)


def _interval(fitted: float, drawn: Floats) -> Elo:
    """The rating in Elo, and where the truth is likely to be given how far simulated ratings miss `fitted`.

    These are the basic bootstrap's limits (Davison and Hinkley 1997, section 5.2). Quantiles of the simulated
    ratings themselves would lie too high for strong players, because fitted ratings err away from the
    anchors. Where simulated players win or lose everything, the interval is open on that side.
    """
    low, high = np.quantile(drawn, (0.025, 0.975), method="inverted_cdf")
    value = fitted * ELO
    if math.isfinite(low) and math.isfinite(high):
        return Elo(value, float(2 * value - high * ELO), float(2 * value - low * ELO))
    return Elo(
        value,
        float(low) * ELO if math.isfinite(low) else None,
        float(high) * ELO if math.isfinite(high) else None,
    )


def _strength(rating: Rating) -> tuple[int, float, float]:
    """For the order: those who won everything come first, and those who lost everything last."""
    elo = rating.elo
    if elo.value is not None:
        return 0, elo.value, rating.score
    if elo.low is not None:
        return 1, elo.low, rating.score
    return (-2, 0.0, rating.score) if elo.high is None else (-1, elo.high, rating.score)
