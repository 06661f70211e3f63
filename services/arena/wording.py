"""Names and formats of the metrics, for the page and the terminal."""

from services.arena.stats import Comparison, Estimate

NAMES = {
    "legal_rate": ("Legal moves", "share of sampled answers"),
    "legal_rate_greedy": ("Legal, greedy", "share of greedy answers"),
    "reward": ("Mean reward", "over sampled answers"),
    "regret_legal": ("Regret, legal", "over every legal sample"),
    "regret_both_legal": ("Regret, paired", "positions where both have a legal sample"),
    "box_rate": ("Readable box", "share of sampled answers with a move in a closed box"),
}
"""Title and explanation of each metric in the tables, by name."""

_SHARES = frozenset({"legal_rate", "legal_rate_greedy", "box_rate"})
_LOWER_IS_BETTER = frozenset({"regret_legal", "regret_both_legal"})


def figure(name: str, value: float | None, *, signed: bool = False) -> str:
    """The value as text, in the metric's unit; `-` for None.

    >>> figure("legal_rate", 0.875), figure("legal_rate", 0.25, signed=True), figure("reward", None)
    ('87.5%', '+25.0 pts', '-')
    >>> figure("reward", -0.25), figure("reward", 0.25, signed=True)
    ('-0.250', '+0.250')
    """
    if value is None:
        return "-"
    unit = (" pts" if signed else "%") if name in _SHARES else ""
    return _number(name, value, signed=signed) + unit


def interval(name: str, estimate: Estimate, *, signed: bool = False) -> str:
    """The interval in brackets, or `no interval`.

    >>> interval("legal_rate", Estimate(0.5, (0.45, 0.55)))
    '[45.0, 55.0]'
    """
    if estimate.ci95 is None:
        return "no interval"
    low, high = (_number(name, bound, signed=signed) for bound in estimate.ci95)
    return f"[{low}, {high}]"


def _number(name: str, value: float, *, signed: bool) -> str:
    scale, digits = (100, 1) if name in _SHARES else (1, 3)
    # "z" prints a negative value that rounds to zero without its minus.
    return f"{scale * value:{'+' if signed else ''}z.{digits}f}"


def judgement(name: str, comparison: Comparison) -> str:
    """`better` or `worse` if the interval of the difference lies on one side of zero, else `unclear`."""
    ci95 = comparison.difference.ci95
    if ci95 is None or ci95[0] <= 0 <= ci95[1]:
        return "unclear"
    return "better" if (ci95[0] > 0) != (name in _LOWER_IS_BETTER) else "worse"
