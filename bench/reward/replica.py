"""One real reward service, started as a user would, for as long as a measurement needs it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from launcher.evaluate import reward_service
from launcher.plan import HOST


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
    with tempfile.TemporaryDirectory(prefix="bench-reward-") as folder:
        log = Path(folder) / "reward.log"
        with reward_service(log, engines=engines, nodes=nodes) as (child, ports):
            own = [process.pid for process in psutil.Process(child.pid).children()]
            yield Replica(child.pid, f"{HOST}:{ports['port']}", f"{HOST}:{ports['grpc_port']}", own)
