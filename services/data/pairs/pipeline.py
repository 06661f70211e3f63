"""Concurrent work on a bounded number of things in one event loop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def spread(things: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int) -> AsyncGenerator[R]:
    """Yields the result of `work` for each thing as it completes. At most `limit` are worked on at a time.

    A thing is taken from `things` only when there is room for it. The first error is raised and cancels the
    rest. Close the generator (`contextlib.aclosing`) to stop early.
    """
    rest = iter(things)
    working: set[asyncio.Task[R]] = set()
    try:
        while True:
            while len(working) < limit:
                try:
                    thing = next(rest)
                except StopIteration:
                    break
                working.add(asyncio.ensure_future(work(thing)))
            if not working:
                return
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                result = task.result()
                working.remove(task)
                yield result
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)  # or asyncio would log their errors
