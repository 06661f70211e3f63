"""How far generation may run ahead of the trainer: AReaL's rule, corrected for lost counts in Redis.

Only arithmetic: `loop` starts the work.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The groups of the whole run, all replicas together, as counted in Redis.

    `accepted` groups were generated and not dropped; `untrained` of them wait in `traces`. `pending`
    positions are held by a consumer.
    """

    accepted: int
    untrained: int
    pending: int


@dataclass(frozen=True, slots=True)
class Admission:
    """At version v, at most (staleness + v + 1) * batch_groups groups exist or are being made.

    A group started now is therefore trained at version v + staleness at the latest.
    Source: `areal/infra/staleness_manager.py` of AReaL.
    """

    batch_groups: int
    staleness: int
    max_inflight: int

    def to_start(self, counts: RunCounts, *, version: int, running: int) -> int:
        """How many of the positions that this process holds may start.

        >>> counts = RunCounts(accepted=90, untrained=90, pending=10)
        >>> Admission(32, 2, 64).to_start(counts, version=0, running=4)
        2
        """
        ahead = self._accepted(counts, version) + running
        return max(0, min(self.max_inflight - running, self._bound(version) - ahead))

    def to_read(self, counts: RunCounts, *, version: int, held: int) -> int:
        """How many more positions may be read from the stream, if this process holds `held` already.

        The pending positions of all replicas count as running.
        """
        ahead = self._accepted(counts, version) + max(counts.pending, held)
        return max(0, min(self.max_inflight - held, self._bound(version) - ahead))

    def _bound(self, version: int) -> int:
        return (self.staleness + version + 1) * self.batch_groups

    def _accepted(self, counts: RunCounts, version: int) -> int:
        # If Redis lost its counts, `accepted` is too small, and every group up to the bound would start.
        return max(counts.accepted, version * self.batch_groups + counts.untrained)
