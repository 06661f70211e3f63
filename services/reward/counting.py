"""Counts requests by transport and result."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rookery import metrics
from rookery.errors import RookeryError
from services.reward.callers import CallerLeft


@contextmanager
def counted(transport: str) -> Iterator[None]:
    """Counts the request that the block handles as `ok`, `cancelled`, `internal` or the kind of its error."""
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
