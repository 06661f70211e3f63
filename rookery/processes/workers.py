"""Work in several processes of this machine, or on a Ray cluster: the same functions, the same results.

A function and its arguments are pickled, and its result must depend on its arguments alone. If a process or a
machine dies, the calls that ran there are made again elsewhere. Each call has one result, so nothing is lost
or doubled. Objects that are slow to start, such as an engine, are `kept` between calls.

Processes of this machine end when this process ends, even if it is killed. The processes of a pool wait on a
pipe and hold its other end themselves, so without their parent they would wait forever. Each of them
therefore watches its parent.
"""

import asyncio
import atexit
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import connection, get_context, parent_process
from typing import Any, ParamSpec, Self, TypeVar, cast

from rookery.devices import usable_cores
from rookery.errors import SetupError, Unavailable

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

RETRIES = 5
"""How often a call is repeated after its process or machine died, before it fails."""

_AHEAD_PER_WORKER = 4
_CONNECT_S = 10.0


def process_pool(jobs: int) -> ProcessPoolExecutor:
    """A pool of `jobs` processes. They are spawned, not forked: engines and progress bars use threads."""
    return _Pool(jobs, mp_context=get_context("spawn"), initializer=_start_worker)


class _Pool(ProcessPoolExecutor):
    """A pool whose `submit`, which starts processes, is not interrupted by Ctrl-C."""

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        with _uninterrupted():
            return super().submit(function, *args, **kwargs)


def _start_worker() -> None:
    # Ctrl-C in a terminal goes to all processes. The parent reports it; this one ends without a traceback.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for a job in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `_uninterrupted`
    threading.Thread(target=_end_with_parent, name="watch parent", daemon=True).start()


def _end_with_parent() -> None:  # pragma: no cover - runs in the pool's processes
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delays Ctrl-C until the end of the block, and until processes that are started in the block have begun.
    A process whose parent is interrupted before it has said what to run ends with a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield  # the handler is not Python's, or this is a thread that Ctrl-C does not interrupt
        return
    signals: list[int] = []
    # Masking alone would not do: another thread may get the signal, and Python interrupts the main thread.
    signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if signals:
            signal.raise_signal(signal.SIGINT)


class RayPool(Executor):
    """Makes calls as tasks of the Ray cluster at `address`, each with one CPU. Raises `SetupError` if Ray is
    not installed, or no cluster answers."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise SetupError(f"a Ray cluster ({address!r}) needs Ray: pip install 'rookery[ray]'") from error
        host, _, port = address.rpartition(":")
        try:
            if host and "://" not in address:  # `ray.init` would wait five minutes for a host that is silent
                socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
            ray.init(address, logging_level="warning")
        except (OSError, ValueError, RuntimeError) as error:
            raise SetupError(f"no Ray cluster at {address!r}: {error}") from error
        self._ray = ray
        self._call = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        result: Future[R] = Future()
        result.set_running_or_notify_cancel()
        task = self._call.remote(function, *args, **kwargs)
        task.future().add_done_callback(partial(_settle, result))
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leaves the cluster, which ends the calls that are not finished."""
        self._ray.shutdown()


def _call(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    asyncio.set_event_loop_policy(None)  # Ray sets uvloop's, whose processes are not those of asyncio
    return function(*args, **kwargs)


def _settle(result: "Future[R]", task: "Future[R]") -> None:
    """Gives `result` what Ray gave: the function's own exception, not Ray's around it."""
    error = task.exception()
    if error is None:
        result.set_result(task.result())
    elif isinstance(cause := getattr(error, "cause", None), Exception):
        cause.__cause__ = error  # it has the worker's traceback
        result.set_exception(cause)
    else:
        reason = f"{type(error).__name__}: {error}".strip(": ")
        result.set_exception(Unavailable(f"Ray has not made a call in {1 + RETRIES} attempts: {reason}"))


class Workers:
    """Makes calls in `jobs` processes (in this one if `jobs` is 1), or on the Ray cluster at `ray`.

    On a cluster, four calls for each of `jobs` are under way or wait for a CPU. By default, `jobs` is its
    number of CPUs when this is made; ask for more if the cluster grows while calls wait.
    """

    def __init__(self, jobs: int | None = None, *, ray: str | None = None) -> None:
        self._pool: Executor | None
        if ray is not None:
            self._pool = cluster = RayPool(ray)
            self.jobs = jobs or cluster.cpus
        else:
            self.jobs = jobs or usable_cores()
            self._pool = process_pool(self.jobs) if self.jobs > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        else:
            close_kept()

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if self._pool is None:
            result: Future[R] = Future()
            result.set_result(function(*args, **kwargs))
            return result
        try:
            return self._pool.submit(function, *args, **kwargs)
        except BrokenExecutor:
            self._pool = process_pool(self.jobs)
            return self._pool.submit(function, *args, **kwargs)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results, in the order of the items. Only a few items are taken ahead of the result awaited.
        Items are worked on again if a process dies."""
        if self._pool is None:
            yield from map(function, items)
            return
        ahead: deque[tuple[T, Future[R]]] = deque()
        for item in items:
            ahead.append((item, self.submit(function, item)))
            if len(ahead) >= self.jobs * _AHEAD_PER_WORKER:
                yield self._next(function, ahead)
        while ahead:
            yield self._next(function, ahead)

    def _next(self, function: Callable[[T], R], ahead: deque[tuple[T, Future[R]]]) -> R:
        for _ in range(RETRIES):
            with suppress(BrokenExecutor):
                result = ahead[0][1].result()
                ahead.popleft()
                return result
            for place, (item, future) in enumerate(ahead):  # a dead process breaks the whole pool
                if isinstance(future.exception(), BrokenExecutor):
                    ahead[place] = item, self.submit(function, item)
        try:
            return ahead.popleft()[1].result()
        except BrokenExecutor as error:
            raise Unavailable(f"{1 + RETRIES} processes died over one piece of work: {error}") from error


_opened: dict[tuple[object, ...], object] = {}
_to_close = ExitStack()


def kept(open_: Callable[P, AbstractContextManager[R]], *args: P.args, **kwargs: P.kwargs) -> R:
    """Returns what `open_` opens for these arguments: once in each process, and closed at its end."""
    key = (open_, *args, *kwargs.items())
    if key not in _opened:
        atexit.register(close_kept)  # later, what is closed could no longer wait for its processes
        _opened[key] = _to_close.enter_context(open_(*args, **kwargs))
    return cast(R, _opened[key])


def close_kept() -> None:
    """Closes everything that this process keeps."""
    _opened.clear()
    _to_close.close()
