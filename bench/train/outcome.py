"""What both sides made of a piece of work, and the promises about it."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.train.measured import Measured
from bench.train.work import Work

Kind = Literal["grpo", "sft"]

LEAST_SPEED: dict[Kind, float] = {"grpo": 2.0, "sft": 1.3}
"""Samples a second over TRL's."""
MOST_MEMORY: dict[Kind, float] = {"grpo": 0.7}
"""Peak resident memory over TRL's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rounds of one piece of work, both sides in turn."""

    kind: Kind
    work: Work
    ours: Sequence[Measured]
    theirs: Sequence[Measured]

    def ratio(self, of: Callable[[Measured], float]) -> float:
        """Median over rounds of ours over theirs."""
        return statistics.median(of(o) / of(t) for o, t in zip(self.ours, self.theirs, strict=True))

    @property
    def speed(self) -> float:
        """By the clock."""
        return self.ratio(lambda side: side.samples_per_s)

    @property
    def cpu_speed(self) -> float:
        """By processor time: what a busy machine leaves of the truth."""
        return self.ratio(lambda side: side.samples_per_cpu_s)

    @property
    def memory(self) -> float:
        """Of the processes' peaks, libraries and all."""
        return self.ratio(lambda side: side.peak_mib)

    @property
    def met(self) -> bool:
        """Whether all that is promised of this kind of work holds, speed by the clock."""
        return self.speed >= LEAST_SPEED[self.kind] and self.memory <= MOST_MEMORY.get(self.kind, 1.0)
