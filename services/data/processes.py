"""Processes for work beside this one, which end when this one does, however it ends.

A pool's processes wait on a pipe whose other end they hold themselves: were their parent killed, they would
wait for ever. So each of them watches its parent.
"""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process


def processes(jobs: int) -> ProcessPoolExecutor:
    """A pool of `jobs` processes. Spawned, not forked: engines and progress displays have threads."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_watch_parent)


def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, name="watch parent", daemon=True).start()


def _end_with_parent() -> None:  # pragma: no cover - runs in the pool's processes
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
