"""The `vllm.general_plugins` entry point: what every vLLM process runs before it loads a model."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

from services.inference.server import cpu_lora

GRACE_S = 5.0


def load() -> None:
    """Installs the patches. vLLM calls it at the start of every process."""
    exit_on_signals_while_starting()
    end_with_parent()
    cpu_lora.install()


def exit_on_signals_while_starting() -> None:
    """Lets a signal end vLLM's server while it waits for its engine to start.

    vLLM 0.32 raises KeyboardInterrupt there, and `zmq_socket_ctx` swallows it, so the server would start and
    serve in spite of the signal. With this patch it exits with status 143.
    """
    from vllm.v1.engine import utils

    swallowing = utils.zmq_socket_ctx

    @contextmanager
    def not_swallowing(*args: Any, **kwargs: Any) -> Iterator[Any]:
        whole = False
        with swallowing(*args, **kwargs) as socket:
            yield socket
            whole = True
        if not whole:
            raise SystemExit(128 + signal.SIGTERM)

    utils.zmq_socket_ctx = not_swallowing


def end_with_parent() -> None:
    """Starts a thread that ends this process when its parent ends; does nothing in the main process.

    vLLM stops its engine on SIGTERM. If the server gets SIGKILL, also from the kernel's out-of-memory killer,
    the engine would stay and keep the memory of the model and the key-value cache.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), name="end-with-parent", daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
