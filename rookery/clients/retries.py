"""What of the reward service is tried again, how often, and how its faults are told."""

import grpc

from rookery.errors import PeerFault

TRIES = 4

BACKOFF_S = (0.2, 0.5, 1.0)
"""Pauses between the tries."""

REFUSALS = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED})
"""Asked again, it would be refused again."""


def reason_of(error: grpc.aio.AioRpcError | PeerFault) -> str:
    """One line for logs and errors."""
    if isinstance(error, PeerFault):
        return str(error)
    return f"{error.code().name} {error.details()}"
