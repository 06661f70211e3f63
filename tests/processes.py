"""Processes of Rookery's modules that end with a block."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.conftest import ROOT, free_port
from tests.waiting import wait_for

ACCELERATE_LAUNCH = (sys.executable, "-m", "accelerate.commands.launch")
"""`accelerate launch`, whose script first imports the other commands, and with them transformers: 2 s."""


@contextmanager
def started(
    *command: object,
    log: Path,
    ready: str = "",
    stop: signal.Signals = signal.SIGKILL,
    environment: Mapping[str, str] = MappingProxyType({}),
    descriptors: int = 0,
) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m COMMAND` in a session of its own, which gets `stop` at the end of the block.

    `ready` is a URL that answers 200 before the block begins. It can open at most so many `descriptors`.
    """
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, command)],
            cwd=ROOT,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    if descriptors:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    try:
        if ready:
            wait_for(ready, process, log=log)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, stop)
        process.wait(120)


@contextmanager
def serving(*command: object, log: Path) -> Iterator[str]:
    """The address of a service on a free port, once it is ready."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (*command, "--host", "127.0.0.1", "--port", port)
    with started(*command, log=log, ready=f"{url}/readyz", stop=signal.SIGTERM):
        yield url
