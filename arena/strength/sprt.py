"""The sequential probability ratio test over game pairs.

The log-likelihood ratio is the generalised one over the pentanomial: each hypothesis fixes one number, the
expected score (logistic Elo) or t = (score - 1/2) / standard deviation of a pair (normalised Elo), and the
rest of the distribution is the most likely one given the results. Source: M. Van den Bergh, "Comments on
Normalized Elo" (cantate.be/Fishtest/normalized_elo_practical.pdf), propositions 1.1 and 4.1, as in fastchess
(app/src/matchmaking/sprt/sprt.cpp).
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arena.strength.pentanomial import ELO, SCORES, expected_score

Floats: TypeAlias = NDArray[np.float64]
Model = Literal["normalized", "logistic"]
Decision = Literal["H0", "H1"]

_SCORES = np.array(SCORES)
_NEVER_SEEN = 1e-3
"""Stands for a count of zero, so that its logarithm is finite (fastchess)."""
_BISECTIONS = 42
_ROUNDS = 100
_LARGEST_NORMALISED = 200.0
"""Up to here, `_with_t` converges from any results; from about 230 on, it may not even start."""


@dataclass(frozen=True, slots=True)
class Sprt:
    """H0: the player is at most `elo0` stronger. H1: at least `elo1`. `alpha` is the probability to accept H1
    although H0 holds, `beta` that to accept H0 although H1 holds."""

    elo0: float
    elo1: float
    alpha: float = 0.05
    beta: float = 0.05
    model: Model = "normalized"

    def __post_init__(self) -> None:
        if not self.elo0 < self.elo1:
            raise ValueError(f"elo0 {self.elo0} is not below elo1 {self.elo1}")
        if self.model == "normalized" and max(abs(self.elo0), abs(self.elo1)) > _LARGEST_NORMALISED:
            raise ValueError(f"[{self.elo0}, {self.elo1}] exceeds +-200 normalised Elo: use logistic Elo")
        if min(self.alpha, self.beta) <= 0 or self.alpha + self.beta >= 1:
            raise ValueError(f"alpha {self.alpha} and beta {self.beta}: above 0, and together below 1")

    @property
    def bounds(self) -> tuple[float, float]:
        """H0 is accepted at or below the first log-likelihood ratio, H1 at or above the second (Wald)."""
        return math.log(self.beta / (1 - self.alpha)), math.log((1 - self.beta) / self.alpha)

    def llr(self, counts: ArrayLike) -> Floats:
        """The log-likelihood ratios of H1 to H0. `counts` is [..., 5], the result [...]."""
        positive_counts = np.maximum(np.asarray(counts, dtype=np.float64), _NEVER_SEEN)
        total = positive_counts.sum(axis=-1, keepdims=True)
        observed = positive_counts / total
        if self.model == "normalized":
            t0, t1 = (math.sqrt(2) * elo / (2 * ELO) for elo in (self.elo0, self.elo1))
            p0, p1 = _with_t(observed, t0), _with_t(observed, t1)
        else:
            p0, p1 = (_tilted(observed, _SCORES - expected_score(elo)) for elo in (self.elo0, self.elo1))
        ratio: Floats = (positive_counts * (np.log(p1) - np.log(p0))).sum(axis=-1)
        return ratio

    def decision(self, counts: ArrayLike) -> Decision | None:
        """The accepted hypothesis, or None while the match must go on."""
        lower, upper = self.bounds
        llr = float(self.llr(counts))
        return "H1" if llr >= upper else "H0" if llr <= lower else None


def _tilted(observed: Floats, excess: Floats) -> Floats:
    """The most likely distribution, given `observed`, under which the mean of `excess` is zero. All [..., 5].

    It is observed / (1 + theta * excess) for the root theta of sum(observed * excess / (1 + theta * excess)),
    which falls in theta between its two poles.
    """
    low: Floats = -1 / excess.max(axis=-1, keepdims=True)
    high: Floats = -1 / excess.min(axis=-1, keepdims=True)
    weighted = observed * excess
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = (weighted / (1 + middle * excess)).sum(axis=-1, keepdims=True) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    tilted: Floats = observed / (1 + (low + high) / 2 * excess)
    return tilted


def _with_t(observed: Floats, t: float) -> Floats:
    """The most likely distribution, given `observed`, whose mean is t standard deviations above 1/2."""
    p = np.full_like(observed, 1 / len(SCORES))
    for _ in range(_ROUNDS):
        mean = (p * _SCORES).sum(axis=-1, keepdims=True)
        sigma = np.sqrt((p * (_SCORES - mean) ** 2).sum(axis=-1, keepdims=True))
        excess = _SCORES - 0.5 - 0.5 * t * sigma * (1 + ((_SCORES - mean) / sigma) ** 2)
        before, p = p, _tilted(observed, excess)
        if np.abs(p - before).max() < 1e-6:
            break
    return p
