"""One real reward service, started as a user would, for as long as a measurement needs it."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 60.0
STOP_S = 20.0
_LISTENS = re.compile(r"http://([^ ]+) and grpc port (\d+)")


class Replica:
    """A running service with empty caches."""

    def __init__(self, *flags: str, engines: int, nodes: int) -> None:
        self._log = tempfile.NamedTemporaryFile("w+", prefix="reward-", suffix=".log")  # noqa: SIM115
        command = [sys.executable, "-m", "services.reward", "--port", "0", "--grpc-port", "0"]
        command += ["--engines", str(engines), "--nodes", str(nodes), *flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REWARD_")}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=self._log, stderr=self._log, start_new_session=True
        )
        self.pid = self._process.pid
        self.http, grpc_port = self._wait()
        self.grpc = f"{self.http.rpartition(':')[0]}:{grpc_port}"
        self.engines = [child.pid for child in psutil.Process(self.pid).children()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Drains; a service that does not end is killed, and its engines end with it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()

    def kill(self) -> None:
        """Ends it without draining."""
        self._process.kill()
        self._process.wait()

    def metric(self, name: str) -> float:
        """The value of one series of `/metrics`, 0 where it does not exist yet."""
        text = httpx.get(f"http://{self.http}/metrics", timeout=10.0).text
        return next(
            (float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0
        )

    def rss_bytes(self) -> int:
        """Resident memory of the Python process."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def _wait(self) -> tuple[str, str]:
        """Host:port of HTTP and the port of gRPC, once it serves."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            text = Path(self._log.name).read_text()
            events = (json.loads(line)["event"] for line in text.splitlines(True) if line.endswith("}\n"))
            if found := next((match for event in events if (match := _LISTENS.search(event))), None):
                return found[1], found[2]
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"the service did not start: {Path(self._log.name).read_text()[-2000:]}")
