"""95% intervals of shares. Unlike a bootstrap's, they have a width even if all that was counted is equal."""

import math
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)
"""The normal quantile of a 95% interval."""


def wilson(right: float, count: int) -> tuple[float, float]:
    """The interval of a share: the p with |share - p| <= z sqrt(p (1 - p) / n).

    E. B. Wilson, Journal of the American Statistical Association 22 (1927), 209-212.

    >>> [tuple(round(x, 3) for x in wilson(right, 20)) for right in (0, 8, 20)]
    [(0.0, 0.161), (0.219, 0.613), (0.839, 1.0)]
    """
    share, z2 = right / count, Z95 * Z95
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count)) / (1 + z2 / count)
    # At 0 and 1 one bound is the share itself, but for rounding.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
