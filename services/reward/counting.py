"""Counts requests by transport and by how they ended."""

from collections.abc import Iterator
from contextlib import contextmanager

from rookery import metrics
from rookery.errors import RookeryError


@contextmanager
def counted(transport: str) -> Iterator[None]:
    """Counts one request of `transport`: `ok`, the kind of the error that ended it, or `internal`."""
    result = "internal"
    try:
        yield
        result = "ok"
    except RookeryError as error:
        result = error.kind
        raise
    finally:
        metrics.REWARD_REQUESTS.labels(transport, result).inc()
