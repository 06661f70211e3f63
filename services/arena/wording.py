"""Formats figures, intervals and judgements, for the page and the terminal."""

import math
from dataclasses import dataclass
from typing import Literal

from services.arena.stats import Estimate


@dataclass(frozen=True, slots=True)
class Metric:
    """What a row of a table measures: its key in report.json, its title, and how its values are read."""

    name: str
    title: str
    explanation: str = ""
    unit: Literal["share", "number", "count", "whole"] = "share"
    better: Literal["higher", "lower", "neither"] = "higher"


def figure(metric: Metric, value: float | None, *, signed: bool = False) -> str:
    """The value as text, in the metric's unit; `-` for None.

    >>> legal, reward = Metric("legal_rate", "Legal"), Metric("reward", "Reward", unit="number")
    >>> figure(legal, 0.875), figure(legal, 0.25, signed=True), figure(reward, None)
    ('87.5%', '+25.0 pts', '-')
    >>> figure(reward, -0.25), figure(reward, 0.25, signed=True)
    ('-0.250', '+0.250')
    """
    if value is None:
        return "-"
    unit = (" pts" if signed else "%") if metric.unit == "share" else ""
    return _number(metric, value, signed=signed) + unit


def interval(metric: Metric, estimate: Estimate, *, signed: bool = False) -> str:
    """The interval in brackets, one bound if the other is infinite, or `no interval`; nothing for a count.

    >>> interval(Metric("legal_rate", "Legal"), Estimate(0.5, (0.45, 0.55)))
    '[45.0, 55.0]'
    >>> interval(Metric("rating", "Rating", unit="whole"), Estimate(None, (-math.inf, 812.4)))
    'below 812'
    """
    if estimate.ci95 is None:
        return "no interval" if metric.unit in ("share", "number") else ""
    low, high = (_number(metric, bound, signed=signed) for bound in estimate.ci95)
    if math.isinf(estimate.ci95[0]):
        return f"below {high}"
    return f"above {low}" if math.isinf(estimate.ci95[1]) else f"[{low}, {high}]"


_SCALES = {"share": (100, 1), "number": (1, 3), "count": (1, 1), "whole": (1, 0)}


def _number(metric: Metric, value: float, *, signed: bool) -> str:
    scale, digits = _SCALES[metric.unit]
    # "z" prints a negative value that rounds to zero without its minus.
    return f"{scale * value:{'+' if signed else ''}z.{digits}f}"


def judgement(metric: Metric, difference: Estimate) -> str:
    """`better` or `worse` if the interval of the difference lies on one side of zero, else `unclear`."""
    ci95 = difference.ci95
    if metric.better == "neither" or ci95 is None or ci95[0] <= 0 <= ci95[1]:
        return "unclear"
    return "better" if (ci95[0] > 0) == (metric.better == "higher") else "worse"
