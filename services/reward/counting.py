"""Counts requests by transport and by how they ended."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rookery import metrics
from rookery.errors import RookeryError
from services.reward.callers import CallerLeft


@contextmanager
def counted(transport: str) -> Iterator[None]:
    """Counts one request of `transport` as `ok`, `cancelled`, `internal` or the kind of its error."""
    result = "internal"
    try:
        yield
        result = "ok"
    except (asyncio.CancelledError, CallerLeft):
        result = "cancelled"
        raise
    except RookeryError as error:
        result = error.kind
        raise
    finally:
        metrics.REWARD_REQUESTS.labels(transport, result).inc()
