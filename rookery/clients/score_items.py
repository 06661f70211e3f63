"""The state of a request to score answers.

An item that the service refuses is final: a retry would be refused again. Only items that met a fault are
retried.
"""

import re
from collections.abc import Sequence

import grpc

from rookery.access import REMEDY
from rookery.codec import item_to_proto, verdict_from_proto
from rookery.errors import InvalidInput, PeerFault, RookeryError, SetupError
from rookery.retries import PAUSES_S
from rookery.trace import ScoreItem, Verdict
from rookery.v1 import reward_pb2

TRIES = len(PAUSES_S) + 1

_REFUSALS: dict[grpc.StatusCode, type[RookeryError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidInput,
    grpc.StatusCode.UNIMPLEMENTED: InvalidInput,
    grpc.StatusCode.UNAUTHENTICATED: SetupError,
}
"""Status codes that a retry cannot change."""

_TOO_LARGE = re.compile(r"message (?:larger than|exceeds)", re.IGNORECASE)
"""What gRPC's libraries say of a message. Its code, RESOURCE_EXHAUSTED, is also that of rate limits."""


class ItemFault(PeerFault):
    """The service answered, but some items met a fault."""


class PendingScores:
    """Items with their verdicts and faults so far."""

    def __init__(self, items: Sequence[ScoreItem], *, scheme: str = "") -> None:
        self._requests = [item_to_proto(item, scheme=scheme) for item in items]
        self._slots: dict[int, Verdict | RookeryError] = {}
        self._open = list(range(len(items)))

    @property
    def open(self) -> list[reward_pb2.ScoreRequest]:
        """The requests that still need an answer."""
        return [self._requests[place] for place in self._open]

    @property
    def slots(self) -> list[Verdict | RookeryError]:
        """Verdicts or errors in the order of the items; an open item has its last fault."""
        return [self._slots[place] for place in range(len(self._requests))]

    def take(self, answers: Sequence[reward_pb2.ScoreBatchItem]) -> None:
        """Records the answers to the open items. Raises `ItemFault` if some of them are faults: those items
        are still open; `PeerFault` if their number differs."""
        if len(answers) != len(self._open):
            raise PeerFault(f"reward service: {len(answers)} answers for {len(self._open)} items")
        for place, answer in zip(self._open, answers, strict=True):
            self._slots[place] = _verdict_or_error(answer)
        self._open = [place for place in self._open if isinstance(self._slots[place], PeerFault)]
        if self._open:
            raise ItemFault(str(self._slots[self._open[0]]))


def _verdict_or_error(answer: reward_pb2.ScoreBatchItem) -> Verdict | RookeryError:
    if answer.HasField("verdict"):
        return verdict_from_proto(answer.verdict)
    problem = answer.problem
    kind = InvalidInput if 400 <= problem.status < 500 else PeerFault
    return kind(f"{problem.title}: {problem.detail}")


def raise_refusal(error: grpc.aio.AioRpcError) -> None:
    """Raises the error of a call that a retry would not change; returns if it may. Raises `InvalidInput`
    if the service refuses or does not understand the request; `SetupError` if the service demands another
    token."""
    kind = _REFUSALS.get(error.code())
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(error.details() or ""):
        kind = InvalidInput
    if kind:
        remedy = f" ({REMEDY})" if kind is SetupError else ""
        raise kind(f"reward service: {reason_of(error)}{remedy}") from error


def reason_of(error: Exception) -> str:
    """One line about a failed call, for logs and errors."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return str(error)
