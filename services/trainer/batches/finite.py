"""NaN and infinity are stopped here, before the model runs, with the group named. NaN is never 0."""

import math
from collections.abc import Sequence
from typing import Protocol

from rookery.trace import TraceGroup

_LARGEST = 1e18
"""Of a reward: its square still fits float32. Beyond, deviations are infinite and advantages silently 0."""


def check_group(group: TraceGroup) -> None:
    """Refuses rewards and log-probabilities of the behaviour policy that are no numbers.

    Raises:
        ArithmeticError: naming the group, the completion and the value.
    """
    for slot, trace in enumerate(group.traces):
        if not abs(trace.verdict.reward) <= _LARGEST:  # NaN compares false
            raise ArithmeticError(
                f"group {group.id}: reward of completion {slot} is {trace.verdict.reward!r}"
            )
        for place, logprob in enumerate(trace.completion.logprobs):
            if not math.isfinite(logprob):
                where = f"token {place} of completion {slot}"
                raise ArithmeticError(f"group {group.id}: log-probability of {where} is {logprob!r}")


def check_advantages(groups: Sequence[TraceGroup], advantages: Sequence[Sequence[float]]) -> None:
    """Refuses advantages that are no numbers, as averages of a damaged commit make them.

    Raises:
        ArithmeticError: naming the group and the values.
    """
    for group, values in zip(groups, advantages, strict=True):
        if not all(map(math.isfinite, values)):
            raise ArithmeticError(f"group {group.id}: advantages {values!r} of rewards {group.rewards!r}")


def check_divergence(kl: float, groups: Sequence[TraceGroup], *, step: int) -> None:
    """Refuses a D(policy || base) that is no number, before a coefficient follows it into a commit.

    Raises:
        ArithmeticError: naming the groups of the step.
    """
    if not math.isfinite(kl):
        names = ", ".join(group.id for group in groups)
        raise ArithmeticError(f"step {step}: D(policy || base) is {kl!r}; the batch holds groups {names}")


class Grouped(Protocol):
    """What a loss was computed from: a row names its group."""

    @property
    def group_id(self) -> str: ...


def check_estimate(group_id: str, *, values: Sequence[float], advantages: Sequence[float]) -> None:
    """Refuses what a critic makes of a completion where it is no number: whitening would spread it over all.

    Raises:
        ArithmeticError: naming the group, the first such token and its numbers.
    """
    for place, (value, advantage) in enumerate(zip(values, advantages, strict=True)):
        if not (math.isfinite(value) and math.isfinite(advantage)):
            raise ArithmeticError(
                f"group {group_id}: value of token {place} is {value!r}, its advantage {advantage!r}"
            )


def check_losses(losses: Sequence[float], batches: Sequence[Sequence[Grouped]], *, step: int) -> None:
    """Refuses losses of micro-batches that are no numbers, before their gradient moves anything.

    Raises:
        ArithmeticError: naming the groups of the first such micro-batch.
    """
    for loss, rows in zip(losses, batches, strict=True):
        if not math.isfinite(loss):
            names = ", ".join(dict.fromkeys(row.group_id for row in rows))
            raise ArithmeticError(f"step {step}: loss is {loss!r} in a micro-batch of groups {names}")
