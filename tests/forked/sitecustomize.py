"""Every Python process of the tests runs this at its start: it makes starts cheaper.

Imports make a million objects that stay. Python's collector would scan them again and again: a fifth of the
time of a start with torch.

PEFT imports bitsandbytes wherever it is installed, and with it torch's compiler: a quarter of a trainer's
start. Commands that tests start quantise nothing, so they do without it; what quantises is tested within
pytest's process.

vLLM's engine becomes a fork of vLLM's server. The CPU build spawns it, so that it imports torch and vLLM a
second time: half of the time of a start. The tests of how a server starts and ends
(tests/integration/inference) do without this file.
"""

import gc
import multiprocessing
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

gc.set_threshold(10_000, 20, 1000)

_get_context = multiprocessing.get_context


def _forking_context(method: str | None = None) -> Any:
    vllm = sys.modules.get("vllm.platforms")
    on_cpu = vllm is not None and vllm.current_platform.is_cpu()  # CUDA does not work in a fork
    return _get_context("fork" if method == "spawn" and on_cpu else method)


def _leave_the_servers_own() -> None:
    """A spawned engine has not the event loop's signals, nor the HTTP port, nor plugins that are loaded."""
    signal.set_wakeup_fd(-1)
    sys.modules["vllm.plugins"].plugins_loaded = False  # type: ignore[attr-defined]
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names alone
        with suppress(OSError):
            inherited = socket.socket(fileno=number)
            if inherited.family is socket.AF_UNIX:
                inherited.detach()
            inherited.close()


class _WithoutBitsandbytes:
    """Finds no module; hides one from PEFT."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "peft":
            sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]


if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2:3] != ["pytest"]:
    sys.meta_path.insert(0, _WithoutBitsandbytes)

if "services.inference.server.start" in sys.orig_argv:
    multiprocessing.get_context = _forking_context
    os.register_at_fork(after_in_child=_leave_the_servers_own)
