"""Rejects NaN and infinity before they reach the weights, and names the groups. NaN is never read as 0."""

import math
from collections.abc import Sequence
from typing import Protocol

from rookery.trace import TraceGroup

_LARGEST = 1e18
"""The largest reward whose square fits float32. Above it, deviations are infinite and advantages become 0."""


def check_group(group: TraceGroup) -> None:
    """Rejects rewards that are too large or NaN, and log-probabilities that are not finite.

    Raises:
        ArithmeticError: a value is such. The message names the group, the completion and the value.
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
    """Rejects advantages that are not finite. The averages of a damaged commit can cause them.

    Raises:
        ArithmeticError: one is not finite. The message names the group and its values.
    """
    for group, values in zip(groups, advantages, strict=True):
        if not all(map(math.isfinite, values)):
            raise ArithmeticError(f"group {group.id}: advantages {values!r} of rewards {group.rewards!r}")


def check_divergence(kl: float, groups: Sequence[TraceGroup], *, step: int) -> None:
    """Rejects a D(policy || base) that is not finite, before a KL coefficient computed from it is committed.

    Raises:
        ArithmeticError: `kl` is not finite. The message names the groups of the step.
    """
    if not math.isfinite(kl):
        names = ", ".join(group.id for group in groups)
        raise ArithmeticError(f"step {step}: D(policy || base) is {kl!r}; the batch holds groups {names}")


class Grouped(Protocol):
    """A row that names its group."""

    @property
    def group_id(self) -> str: ...


def check_estimate(group_id: str, *, values: Sequence[float], advantages: Sequence[float]) -> None:
    """Rejects a critic's values and advantages that are not finite. Whitening would spread NaN to all tokens.

    Raises:
        ArithmeticError: one is not finite. The message names the group, the first such token and its numbers.
    """
    for place, (value, advantage) in enumerate(zip(values, advantages, strict=True)):
        if not (math.isfinite(value) and math.isfinite(advantage)):
            raise ArithmeticError(
                f"group {group_id}: value of token {place} is {value!r}, its advantage {advantage!r}"
            )


def check_losses(losses: Sequence[float], batches: Sequence[Sequence[Grouped]], *, step: int) -> None:
    """Rejects losses of micro-batches that are not finite, before the optimizer uses their gradients.

    Raises:
        ArithmeticError: one is not finite. The message names the groups of the first such micro-batch.
    """
    for loss, rows in zip(losses, batches, strict=True):
        if not math.isfinite(loss):
            names = ", ".join(dict.fromkeys(row.group_id for row in rows))
            raise ArithmeticError(f"step {step}: loss is {loss!r} in a micro-batch of groups {names}")
