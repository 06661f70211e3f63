"""Work on many things at once, a bounded number of them, in one event loop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def spread(things: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int) -> AsyncGenerator[R]:
    """What `work` makes of each thing, as it is done; at most `limit` are in the works.

    A thing is taken when there is room for it. The first error ends the rest. Close the generator
    (`contextlib.aclosing`) to leave before its end.
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
        await asyncio.gather(*working, return_exceptions=True)  # takes note of their errors, too
