"""Spreads work over processes and threads. Results keep their order; few of them wait to be taken."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar, cast

from services.data.processes import processes

T = TypeVar("T")
R = TypeVar("R")

_PIECES_AHEAD = 4
_END = object()


class Workers:
    """Offers a `map` like the built-in one over `jobs` processes, or in this process if `jobs` is 1."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool = processes(jobs) if jobs > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[T], R], pieces: Iterable[T]) -> Iterator[R]:
        """The results, in the order of the pieces."""
        if self._pool is None:
            yield from map(function, pieces)
            return
        ahead: deque[Future[R]] = deque()
        for piece in pieces:
            ahead.append(self._pool.submit(function, piece))
            if len(ahead) >= self._jobs * _PIECES_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yields from `items`, while a thread gets the next one ready."""
    with ThreadPoolExecutor(1) as thread:
        coming: Future[T | object] = thread.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, items, _END)
            yield cast(T, item)
