"""Concurrent work whose results keep their order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_order(work: Iterable[Coroutine[Any, Any, T]], *, ahead: int) -> AsyncGenerator[T]:
    """Yields what each coroutine returns, in order. At most `ahead` coroutines run at a time.

    The first error is raised and cancels the rest. Closing the generator cancels what is still running.
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
