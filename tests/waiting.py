"""Waits for a service that a test has started as a process."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest


def wait_for(
    url: str,
    process: "subprocess.Popen[bytes] | subprocess.Popen[str]",
    *,
    status: int = 200,
    within_s: float = 240.0,
    log: Path | Callable[[], str] | None = None,
) -> httpx.Response:
    """The first answer of `url` with `status`. If there is none, the test fails and shows the log."""
    deadline = time.monotonic() + within_s
    with httpx.Client(timeout=10.0) as http:  # `httpx.get` loads certificates each time: 20 ms of CPU
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                answer = http.get(url)
                if answer.status_code == status:
                    return answer
            time.sleep(0.05)
    text = log.read_text() if isinstance(log, Path) else log() if log else ""
    pytest.fail(f"{url} did not answer {status} in {within_s} s (exit {process.poll()}): {text[-4000:]}")
