"""Which reward-service calls are retried, and how failures are reported."""

import grpc

from rookery.errors import PeerFault

TRIES = 4

BACKOFF_S = (0.2, 0.5, 1.0)
"""Pauses between the attempts."""

REFUSALS = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED})
"""Status codes that a retry cannot change."""


def reason_of(error: grpc.aio.AioRpcError | PeerFault) -> str:
    """One line for logs and errors."""
    if isinstance(error, PeerFault):
        return str(error)
    return f"{error.code().name} {error.details()}"
