"""One real reward service, started as a user would, for as long as a measurement needs it."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from launcher.plan import HOST
from launcher.serve_players import running
from launcher.services import MODULES, as_flags
from rookery.processes.child import Command
from rookery.processes.ports import Ports


@dataclass(frozen=True)
class Replica:
    """A running service with empty caches. `http` and `grpc` are its addresses, `engines` process ids."""

    pid: int
    http: str
    grpc: str
    engines: list[int]

    def metric(self, name: str) -> float:
        """The value of one series of `/metrics`, 0 where it does not exist yet."""
        text = httpx.get(f"http://{self.http}/metrics", timeout=10.0).text
        return next(
            (float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0
        )


@contextmanager
def replica(*, engines: int, nodes: int) -> Iterator[Replica]:
    """Starts a service, and stops it at the end.

    Raises:
        SetupError: it does not start.
    """
    with Ports(HOST) as ports, tempfile.TemporaryDirectory(prefix="bench-reward-") as folder:
        port, grpc_port = ports.choose(0), ports.choose(0)
        flags = {"host": HOST, "port": port, "grpc_port": grpc_port, "engines": engines, "nodes": nodes}
        command = Command(
            "reward service",
            (sys.executable, "-m", MODULES["reward"], *as_flags(flags)),
            Path(folder) / "reward.log",
            probe_url=f"http://{HOST}:{port}/readyz",
        )
        with running(command) as child:
            own = [process.pid for process in psutil.Process(child.pid).children()]
            yield Replica(child.pid, f"{HOST}:{port}", f"{HOST}:{grpc_port}", own)
