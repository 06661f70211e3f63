"""Repeats calls that failed, with pauses in between, and pauses that a stop ends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

PAUSES_S = (0.2, 0.5, 1.0)
"""Pauses between the attempts of a client's call, so there is one attempt more than pauses."""


def pause_after(failures: int, pauses_s: Sequence[float]) -> float:
    """The pause after so many failures in a row, at least 1. The last of `pauses_s` repeats.

    >>> [pause_after(failures, (0.5, 2.0)) for failures in (1, 2, 3)]
    [0.5, 2.0, 2.0]
    """
    return pauses_s[min(failures, len(pauses_s)) - 1]


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    pauses_s: Sequence[float],
    failed: Callable[[Exception, int], None] = lambda error, failures: None,
) -> T:
    """The result of `call`, which is repeated after each of `pauses_s` if it raises one of `on`. `failed` is
    called before each pause, with the error and the number of failures. The last error is raised."""
    for failures, pause_s in enumerate(pauses_s, start=1):
        try:
            return await call()
        except on as error:
            failed(error, failures)
            await asyncio.sleep(pause_s)
    return await call()


async def pause(stopping: asyncio.Event, seconds: float) -> bool:
    """Waits for `stopping`, at most `seconds`. Returns whether it is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
    return stopping.is_set()
