"""How long callers waited, beside the least that the engines allow.

Of `callers` who always wait, each waits callers / verdicts per second on average; so the mean on the
bare engines, were they to answer calls, would be callers / the limit.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.reward.callers import Waited


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, of the callers of one round."""

    p50_ms: float
    p99_ms: float
    mean_ms: float


def latency(replies: Sequence[object]) -> Latency | None:
    """None for batches, whose callers wait for many verdicts at once."""
    waits_ms = sorted(1000 * reply.seconds for reply in replies if isinstance(reply, Waited))
    if not waits_ms:
        return None
    return Latency(percentile(waits_ms, 0.5), percentile(waits_ms, 0.99), statistics.fmean(waits_ms))


def percentile(ordered: Sequence[float], part: float) -> float:
    """The nearest rank.

    >>> percentile([1.0, 2.0, 3.0, 4.0, 5.0], 0.5)
    3.0
    """
    return ordered[round(part * (len(ordered) - 1))]
