"""`python -m services.inference.server.start`: vLLM's server, and the first module of what it spawns.

Until vLLM handles Ctrl-C, it ends the server without a traceback, and the other processes leave it to the
server. They end when the server does. Imports nothing slow before that.
"""

import gc
import multiprocessing
import os
import runpy
import signal
import threading
from multiprocessing.connection import wait

LAUNCHER = "vllm.entrypoints.launchers.api_server.entry"

GRACE_S = 5

_WATCHER = "end-with-parent"


def end_with_parent() -> None:
    """Starts a thread that ends this process when its parent ends; does nothing in the main process.

    vLLM stops its engine on SIGTERM. If the server gets SIGKILL, also from the kernel's out-of-memory killer,
    the engine would stay and keep the memory of the model and the key-value cache.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and all(thread.name != _WATCHER for thread in threading.enumerate()):
        threading.Thread(target=_watch, args=(parent.sentinel,), name=_WATCHER, daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    # The kernel's timer also ends a process that hangs in the interpreter's end, after all threads.
    signal.alarm(GRACE_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ in ("__main__", "__mp_main__"):  # the latter in a process that is spawned
    if __name__ == "__mp_main__":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    elif signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for a job in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()

if __name__ == "__main__":
    gc.disable()  # until vLLM loads `engine_plugin`: imports leave a million objects, and no garbage
    runpy.run_module(LAUNCHER, run_name="__main__")
