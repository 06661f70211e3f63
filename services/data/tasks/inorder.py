"""Results in the order of their questions, while later ones are already being worked on."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_order(work: Iterable[Coroutine[Any, Any, T]], *, ahead: int) -> AsyncGenerator[T]:
    """What each coroutine returns. `work` is taken from only as far as `ahead` results are awaited.

    The first error ends it all; whoever stops listening cancels what is under way.
    """
    waiting: deque[asyncio.Task[T]] = deque()
    try:
        for coroutine in work:
            waiting.append(asyncio.create_task(coroutine))
            if len(waiting) >= ahead:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
