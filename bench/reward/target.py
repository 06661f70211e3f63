"""The figures that were promised, each beside the one that was measured."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.reward.cached import Cached
from bench.reward.outcome import Outcome

OF_LIMIT = {("grpc", 10_000): 0.95, ("grpc", 1_000): 0.85, ("http", 10_000): 0.9}
"""Least part of the limit by route and nodes."""

CACHED_PER_S = 5000
"""On two cores."""


@dataclass(frozen=True, slots=True)
class Target:
    """`measured` is to be `least` or more; `note` is what else one should know of it."""

    name: str
    least: float
    measured: float
    note: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.least


def targets(outcomes: Sequence[Outcome], cached: Sequence[Cached]) -> list[Target]:
    """Those that these figures decide, each workload for itself."""
    found = [
        _of_limit(outcome, side)
        for outcome in outcomes
        for side in outcome.case.routes
        if (side, outcome.case.nodes) in OF_LIMIT
    ]
    return found + [_cached(row) for row in cached if row.way in ("grpc", "http")]


def _of_limit(outcome: Outcome, side: str) -> Target:
    case = outcome.case
    disturbed = "" if outcome.is_calm else ", and no round was calm"
    return Target(
        f"{side} of the limit: {case.kind}, {case.nodes:,} nodes, {case.engines} engines",
        OF_LIMIT[side, case.nodes],
        statistics.median(outcome.ratios(side)),
        f"by CPU {outcome.cpu_ratio(side):.3f}{disturbed}",
    )


def _cached(row: Cached) -> Target:
    return Target(
        f"{row.way} cached verdicts/s: {row.kind}, {row.positions:,} positions",
        CACHED_PER_S,
        statistics.median(row.verdicts_per_s),
        f"{os.cpu_count()} cores",
    )
