"""Ends vLLM's engine when its parent process is killed.

vLLM stops its engine on SIGTERM. If the server gets SIGKILL, also from the kernel's out-of-memory killer, the
engine would stay and keep the memory of the model and the key-value cache. This adds a thread that watches
the parent to each of vLLM's processes, through the entry point `vllm.general_plugins`.
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import wait

GRACE_S = 5.0


def end_with_parent() -> None:
    """Starts a thread that ends this process when its parent ends; does nothing in the main process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), name="end-with-parent", daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
