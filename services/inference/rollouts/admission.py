"""How far generation may run ahead of the trainer: AReaL's rule, made whole again after a loss.

Knows numbers only; who runs what is `loop`'s business.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ledger:
    """Groups of the whole run, from Redis: every replica's, not only this process's.

    `accepted` were generated and not thrown away, `untrained` of them wait in `traces`, `pending`
    positions are held by some consumer.
    """

    accepted: int
    untrained: int
    pending: int


@dataclass(frozen=True, slots=True)
class Admission:
    """At version v, at most (staleness + v + 1) * batch_groups groups exist or are being made.

    Source: `areal/infra/staleness_manager.py` of AReaL. A group started now is then trained at
    version v + staleness at the latest.
    """

    batch_groups: int
    staleness: int
    max_inflight: int

    def held(self, ledger: Ledger, *, version: int, running: int) -> int:
        """How many positions already held by this process may start.

        >>> Admission(32, 2, 64).held(Ledger(accepted=90, untrained=90, pending=10), version=0, running=4)
        2
        """
        ahead = self._accepted(ledger, version) + running
        return max(0, min(self.max_inflight - running, self._bound(version) - ahead))

    def new(self, ledger: Ledger, *, version: int, held: int) -> int:
        """How many more positions may be taken; `held` ones of this process go before them.

        Pending positions of other replicas count as running.
        """
        ahead = self._accepted(ledger, version) + max(ledger.pending, held)
        return max(0, min(self.max_inflight - held, self._bound(version) - ahead))

    def _bound(self, version: int) -> int:
        return (self.staleness + version + 1) * self.batch_groups

    def _accepted(self, ledger: Ledger, version: int) -> int:
        # A Redis that lost its counts would otherwise admit everything up to the bound at once.
        return max(ledger.accepted, version * self.batch_groups + ledger.untrained)
