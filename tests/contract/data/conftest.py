"""The data service as its callers meet it: a process of its own on free ports."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.conftest import ROOT, free_port
from tests.waiting import wait_for

START_S = 60.0


@dataclass
class RunningService:
    """A service in its own process; `stop` asks it to end and keeps what it logged."""

    process: subprocess.Popen[str]
    url: str
    grpc_target: str
    log: str | None = None

    def stop(self) -> tuple[int, str]:
        if self.log is None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            _, self.log = self.process.communicate(timeout=30)
        return self.process.returncode, self.log

    def wait_ready(self) -> None:
        wait_for(f"{self.url}/readyz", self.process, within_s=START_S, log=lambda: self.stop()[1])


@pytest.fixture(scope="session")
def start_data() -> Iterator[Callable[..., RunningService]]:
    """Starts `python -m MODULE FLAGS`; all of them end with the session."""
    started: list[RunningService] = []

    def start(module: str, *flags: str) -> RunningService:
        port, grpc_port = free_port(), free_port()
        ports = ["--port", str(port)]
        if module == "services.data":
            ports += ["--grpc-port", str(grpc_port)]
        process = subprocess.Popen(
            [sys.executable, "-m", module, *ports, *flags], stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        started.append(RunningService(process, f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}"))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture(scope="session")
def data_service(start_data: Callable[..., RunningService]) -> RunningService:
    service = start_data("services.data")
    service.wait_ready()
    return service
