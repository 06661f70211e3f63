"""95% intervals of shares, which have a width even if all that was counted is equal; estimates in words."""

import math
from collections.abc import Sequence
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


def estimate_text(mean: float | None, bounds: Sequence[float | None], form: str) -> str:
    """An estimate with its interval, of which a bound that is None is infinite, in the format `form`.

    >>> estimate_text(0.5, (0.25, 0.75), ".0%"), estimate_text(3, (None, 9), "d")
    ('50% [25%, 75%]', '3 (at most 9)')
    >>> estimate_text(None, (2, None), "d"), estimate_text(None, (None, None), "d")
    ('at least 2', 'unknown')
    """
    low, high = ("" if bound is None else f"{bound:{form}}" for bound in bounds)
    known = (
        f"[{low}, {high}]"
        if low and high
        else f"at least {low}"
        if low
        else f"at most {high}"
        if high
        else ""
    )
    if mean is None:
        return known or "unknown"
    return f"{mean:{form}} {known if low and high else f'({known})' if known else '(no interval)'}"
