"""Ends vLLM's engine when the process that owns it is killed.

vLLM stops its engine on SIGTERM. On SIGKILL, or when the kernel runs out of memory, the engine would
stay behind with the model and the key-value cache. Loaded into each of vLLM's processes through its
`vllm.general_plugins` door; changes nothing there but adds a thread that waits.
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import wait

GRACE_S = 5.0


def end_with_parent() -> None:
    """In a child process, starts to watch for the parent's end; elsewhere does nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), name="end-with-parent", daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
