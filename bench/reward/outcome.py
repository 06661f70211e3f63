"""What a measurement found: samples of every side in rounds, and the ratios that count.

A round is calm when nobody else used the machine to speak of. Ratios are taken from calm rounds;
only where there was none do disturbed ones stand in, and `is_calm` says so.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.reward.latency import Latency
from bench.reward.usage import Usage
from bench.reward.workload import Kind

CALM_CORES = 0.15
"""What strangers may use during any sample of a calm round."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: `routes` of a service with so many engines and nodes."""

    kind: Kind
    nodes: int
    engines: int
    routes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One side in one round."""

    verdicts: int
    searches: int
    usage: Usage
    latency: Latency | None = None

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
        """The limit's processor time a verdict to this side's: strangers do not change it.

        It is what the clock would say with as many engines as cores if no core were ever idle.
        """
        return statistics.median(one["limit"].cpu_s / one[side].cpu_s for one in self.rounds)
