"""The inference server as a process of a test's own."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from rookery.access import OPEN, TOKEN_VARIABLE, Access
from tests.conftest import free_port
from tests.waiting import until, wait_for

START_S = 300.0
RUN = "served"


@dataclass
class Server:
    """A server process of one run, to stop and start again."""

    model: Path
    root: Path
    redis_url: str
    flags: tuple[str, ...] = ()
    access: Access = OPEN
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def start(self) -> None:
        self.launch()
        self.wait_for("/healthz", 200)

    def launch(self) -> None:
        command = [sys.executable, "-m", "services.inference.server", "--model", str(self.model)]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--adapter-root", str(self.root)]
        command += ["--redis-url", self.redis_url, "--run", RUN, *self.flags]
        with self.log.open("ab") as log:
            environment = os.environ | ({TOKEN_VARIABLE: self.access.token} if self.access.token else {})
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def wait_for(self, path: str, status: int) -> httpx.Response:
        assert self.process
        return wait_for(self.url + path, self.process, status=status, within_s=START_S, log=self.log)

    def processes(self) -> list[str]:
        """Everything alive in the server's session."""
        assert self.process
        return [
            " ".join(process.info["cmdline"] or [])
            for process in psutil.process_iter(["cmdline", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE and _session(process.pid) == self.process.pid
        ]

    def exit_status(self) -> int:
        """That of the ended server, once nothing of it is left."""
        assert self.process
        status = self.process.wait(180)
        until(lambda: not self.processes(), within_s=180, every_s=0.1)  # native code may hold the lock
        return status

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process:
            self.process.send_signal(number)
            self.process.wait(120)

    def kill(self) -> None:
        """Ends whatever a failed test has left running."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
