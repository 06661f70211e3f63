"""One real inference server for the length of the bench, with vLLM's own LoRA routes open beside ours."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from rookery.processes.ports import bind

START_S = 600.0


@contextmanager
def running(model: Path, root: Path) -> Iterator[tuple[str, float]]:
    """URL of a warm server, and the seconds its start took."""
    with bind("127.0.0.1", 0, setting="") as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "services.inference.server", "--model", str(model), "--no-follow"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--adapter-root", str(root)]
    started = time.perf_counter()
    with (root / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(url, process, root / "server.log")
        yield url, time.perf_counter() - started
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _wait_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=5.0).status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the server did not become ready: {log.read_text()[-2000:]}")
