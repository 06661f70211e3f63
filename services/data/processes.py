"""Worker processes that end when this process ends, even if it is killed.

The processes of a pool wait on a pipe, and they hold its other end themselves. If their parent were killed,
they would wait forever, so each of them watches its parent.
"""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process


def processes(jobs: int) -> ProcessPoolExecutor:
    """A pool of `jobs` processes. They are spawned, not forked: engines and progress bars use threads."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_watch_parent)


def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, name="watch parent", daemon=True).start()


def _end_with_parent() -> None:  # pragma: no cover - runs in the pool's processes
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
