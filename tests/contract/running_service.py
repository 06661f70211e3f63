"""A service as its callers meet it: a process of its own on free ports."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.conftest import ROOT, free_port
from tests.waiting import wait_for

START_S = 240.0


@dataclass
class RunningService:
    """A service in its own process; `stop` asks it to end and keeps what it logged."""

    process: subprocess.Popen[str]
    url: str
    grpc_target: str
    log: str | None = None

    def stop(self) -> tuple[int, str]:
        """Its exit status and what it logged."""
        if self.log is None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            _, self.log = self.process.communicate(timeout=120)
        return self.process.returncode, self.log

    def wait_ready(self) -> None:
        wait_for(f"{self.url}/readyz", self.process, within_s=START_S, log=lambda: self.stop()[1])


@contextmanager
def services() -> Iterator[Callable[..., RunningService]]:
    """Starts `python -m MODULE FLAGS`; all of them end with the block."""
    started: list[RunningService] = []

    def start(module: str, *flags: str, **environment: str) -> RunningService:
        port, grpc_port = free_port(), free_port()
        ports = ["--port", str(port)]
        if module in ("services.data", "services.reward"):
            ports += ["--grpc-port", str(grpc_port)]
        command = [sys.executable, "-m", module, *ports, *flags]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **environment}
        )
        started.append(RunningService(process, f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}"))
        return started[-1]

    yield start
    for service in started:
        service.stop()
