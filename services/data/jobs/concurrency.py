"""Bounded concurrent work in this process: coroutines whose results come in order or as they complete."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")

_END = object()


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """Yields from `items`, while a thread computes the next one."""
    with ThreadPoolExecutor(1) as thread:
        coming: Future[T | object] = thread.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, items, _END)
            yield cast(T, item)


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
        await _cancel(waiting)


async def as_completed(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int
) -> AsyncGenerator[R]:
    """Yields the result of `work` for each item as it completes. At most `limit` are worked on at a time.

    An item is taken from `items` only when there is room for it. The first error is raised and cancels the
    rest. Close the generator (`contextlib.aclosing`) to stop early.
    """
    rest = iter(items)
    working: set[asyncio.Future[R]] = set()
    try:
        while True:
            while len(working) < limit:
                try:
                    item = next(rest)
                except StopIteration:
                    break
                working.add(asyncio.ensure_future(work(item)))
            if not working:
                return
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                result = task.result()
                working.remove(task)
                yield result
    finally:
        await _cancel(working)


async def _cancel(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)  # otherwise asyncio would log their errors
