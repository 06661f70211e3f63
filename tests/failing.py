"""Failpoints of the test's own process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rookery import failpoints


@contextmanager
def armed(points: str) -> Iterator[None]:
    """Arms this process as ROOKERY_FAILPOINTS does, for a `with` block."""
    failpoints.arm({"ROOKERY_FAILPOINTS": points})
    try:
        yield
    finally:
        failpoints.arm(os.environ)
