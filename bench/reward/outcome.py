"""What a measurement found: samples of every side in rounds, the ratios that count, and what was promised.

A round is calm when nobody else used the machine to speak of. Ratios are taken from calm rounds;
only where there was none do disturbed ones stand in, and `is_calm` says so.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from bench.reward.workload import Kind
from bench.usage import Usage

CALM_CORES = 0.15
"""What strangers may use during any sample of a calm round."""

OF_LIMIT = {("grpc", 10_000): 0.95, ("grpc", 1_000): 0.85, ("http", 10_000): 0.9}
"""Least part of the limit by route and nodes."""

NAMES = {"limit": "raw UCI pipes", "grpc": "gRPC ScoreBatch", "http": "HTTP batch", "peer": "python-chess"}


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: `routes` of a service with so many engines and nodes."""

    kind: Kind
    nodes: int
    engines: int
    routes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}, {self.nodes:,} nodes, {self.engines} engine{'s' * (self.engines > 1)}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One side in one round."""

    verdicts: int
    searches: int
    usage: Usage

    @property
    def verdicts_per_s(self) -> float:
        return self.verdicts / self.usage.seconds

    @property
    def cpu_s(self) -> float:
        """Processor time of a verdict, whoever spent it."""
        return self.usage.cpu_s / self.verdicts


Round = dict[str, Sample]
"""By side: `limit`, `peer` or a route."""


def is_calm(one: Round) -> bool:
    """Whether the machine was ours throughout."""
    return all(sample.usage.others_cores <= CALM_CORES for sample in one.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rounds of a case."""

    case: Case
    rounds: list[Round]

    @property
    def is_calm(self) -> bool:
        return any(map(is_calm, self.rounds))

    @property
    def counted(self) -> list[Round]:
        """The calm rounds, or all where there is none."""
        return [one for one in self.rounds if is_calm(one)] or self.rounds

    def median(self, side: str, figure: Callable[[Sample], float]) -> float:
        """Of a figure over the rounds that count."""
        return statistics.median(figure(one[side]) for one in self.counted)

    def ratios(self, side: str) -> list[float]:
        """Of its rate to the limit's, by the clock, round by round."""
        return [one[side].verdicts_per_s / one["limit"].verdicts_per_s for one in self.counted]

    def cpu_ratio(self, side: str) -> float:
        """The limit's processor time a verdict to this side's: strangers do not change it. It is what the
        clock would say with as many engines as cores if no core were ever idle."""
        return statistics.median(one["limit"].cpu_s / one[side].cpu_s for one in self.rounds)

    def json(self) -> dict[str, Any]:
        """All samples, with the ratios worked out."""
        sides = self.rounds[0]
        return {
            **asdict(self),
            "calm": [is_calm(one) for one in self.rounds],
            "of_the_limit": {side: statistics.median(self.ratios(side)) for side in sides},
            "of_the_limit_by_cpu": {side: self.cpu_ratio(side) for side in sides},
        }

    def table(self) -> Table:
        limit, calm = self.rounds[0]["limit"], sum(map(is_calm, self.rounds))
        table = Table(
            "side", "verdicts/s", "of the limit", "range", "by CPU", "server", "client", "engine", "idle",
            "others",
            title=f"{self.case}: {limit.verdicts:,} verdicts by {limit.searches:,} searches a round, "
            f"{len(self.rounds)} rounds, {calm} calm",
            caption="medians; of the limit: by the clock; server, client, engine: us of CPU a verdict; "
            "idle, others: cores that nobody and that strangers used",
        )  # fmt: skip
        for side in ("limit", *self.case.routes, "peer"):
            if side in self.rounds[0]:
                ratios = self.ratios(side)
                table.add_row(
                    NAMES[side],
                    f"{self.median(side, lambda sample: sample.verdicts_per_s):,.0f}",
                    f"{statistics.median(ratios):.3f}",
                    f"{min(ratios):.3f}-{max(ratios):.3f}",
                    f"{self.cpu_ratio(side):.3f}",
                    f"{self.median(side, lambda s: 1e6 * s.usage.server_cpu_s / s.verdicts):.0f}",
                    f"{self.median(side, lambda s: 1e6 * s.usage.client_cpu_s / s.verdicts):.0f}",
                    f"{self.median(side, lambda s: 1e6 * s.usage.engine_cpu_s / s.verdicts):.0f}",
                    f"{self.median(side, lambda sample: sample.usage.idle_cores):.2f}",
                    f"{self.median(side, lambda sample: sample.usage.others_cores):.2f}",
                )
        return table


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


def targets(outcomes: Sequence[Outcome]) -> list[Target]:
    """What was promised of the sides that were measured, each workload for itself."""
    return [
        Target(
            f"{side} of the limit: {outcome.case}",
            OF_LIMIT[side, outcome.case.nodes],
            statistics.median(outcome.ratios(side)),
            f"by CPU {outcome.cpu_ratio(side):.3f}{'' if outcome.is_calm else ', and no round was calm'}",
        )
        for outcome in outcomes
        for side in outcome.case.routes
        if (side, outcome.case.nodes) in OF_LIMIT
    ]
