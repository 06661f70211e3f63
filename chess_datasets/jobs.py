"""Runs work in threads, coroutines and worker processes, with an engine each, and shows its progress."""

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from rookery.engines import EnginePool, find_engine
from rookery.errors import SetupError
from rookery.processes.workers import kept
from rookery.terminal import SafeConsole
from rookery.uci import Analysis, Query

T = TypeVar("T")
R = TypeVar("R")

_END = object()

_LINE_S = 60.0


def batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yields lists of `size` items, the last one shorter."""
    while batch := list(islice(items, size)):
        yield batch


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """Yields from `items`, while a thread computes the next two. With one, it could begin only when the
    caller gives up the interpreter's lock: as a rule when the caller waits for it."""
    with ThreadPoolExecutor(1) as thread:
        coming: deque[Future[T | object]] = deque(thread.submit(next, items, _END) for _ in range(2))
        while (item := coming.popleft().result()) is not _END:
            coming.append(thread.submit(next, items, _END))
            yield cast(T, item)


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
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)  # otherwise asyncio would log their errors


class Searcher(Protocol):
    """Anything that searches: a `rookery.engines.EnginePool`, one of its queues, or a double in a test."""

    async def search(self, query: Query) -> Analysis:
        """The engine's answer to `query`."""


_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class WorkerEngine:
    """The engine that every worker must have: the path of its binary (None: the usual one), and its name. It
    is kept between calls and runs in an event loop of its own, which is only active during a call."""

    path: Path | None
    name: str = ""

    def run(self, work: Callable[[EnginePool], Coroutine[Any, Any, R]]) -> R:
        """What `work` returns, given this process's engine. Raises `SetupError` if this machine has no
        engine, or another one."""
        runner, engines = kept(_running_engine, self.path)
        if self.name and engines.engine_id != self.name:
            raise SetupError(
                f"the engine on {socket.gethostname()} is {engines.engine_id!r}, elsewhere {self.name!r}: "
                "install the same version on every machine"
            )
        return runner.run(work(engines))


def engine_name(path: Path | None) -> str:
    """The name of this process's engine."""
    _, engines = kept(_running_engine, path)
    return engines.engine_id


@contextmanager
def _running_engine(path: Path | None) -> Iterator[tuple["asyncio.Runner", EnginePool]]:
    binary = find_engine(path, setting="--engine")
    engines = EnginePool(binary, engines=1, hash_mb=16, queue=64, deadline_s=_DEADLINE_S)
    with asyncio.Runner() as runner:
        runner.run(engines.start())
        try:
            yield runner, engines
        finally:
            runner.run(engines.close())


class Progress:
    """A progress bar for each stage of a long command, on stderr; without a terminal, a line every minute."""

    def __init__(self) -> None:
        self._console = console = SafeConsole(stderr=True)
        count = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[unit]}"))
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        self._bars = Bars(
            TextColumn("{task.description}"),
            *count,
            *times,
            console=console,
            disable=not console.is_terminal,
        )
        self._task = TaskID(0)
        self._next_line = time.monotonic() + _LINE_S

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def begin(self, stage: str, *, unit: str, total: int | None = None) -> None:
        """Starts the next stage. Without `total`, the bar shows no end."""
        self._task = self._bars.add_task(stage, total=total, unit=unit)

    def advance(self, count: int) -> None:
        self._bars.advance(self._task, count)
        if not self._console.is_terminal and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_S
            task = self._bars.tasks[self._task]
            of = f" of {task.total:,.0f}" if task.total else ""
            self._console.out(f"{task.description}: {task.completed:,.0f}{of} {task.fields['unit']}")
