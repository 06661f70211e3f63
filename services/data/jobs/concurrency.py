"""Bounded concurrent work: processes, and coroutines whose results come in order or as they complete.

Worker processes end when this process ends, even if it is killed. The processes of a pool wait on a pipe and
hold its other end themselves, so without their parent they would wait forever. Each of them therefore watches
its parent.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import connection, get_context, parent_process
from types import TracebackType
from typing import Any, Self, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")

_AHEAD_PER_PROCESS = 4
_END = object()


def process_pool(jobs: int) -> ProcessPoolExecutor:
    """A pool of `jobs` processes. They are spawned, not forked: engines and progress bars use threads."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_watch_parent)


def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, name="watch parent", daemon=True).start()


def _end_with_parent() -> None:  # pragma: no cover - runs in the pool's processes
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


class Workers:
    """Offers a `map` like the built-in one over `jobs` processes, or in this process if `jobs` is 1."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool = process_pool(jobs) if jobs > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results, in the order of the items. Only a few items are taken ahead of the result awaited."""
        if self._pool is None:
            yield from map(function, items)
            return
        ahead: deque[Future[R]] = deque()
        for item in items:
            ahead.append(self._pool.submit(function, item))
            if len(ahead) >= self._jobs * _AHEAD_PER_PROCESS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


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
