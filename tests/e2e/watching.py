"""Prometheus and `rookery exporter` beside a running `rookery up`."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import ROOT, free_port
from tests.prometheus_server import PrometheusServer

WITHIN_S = 240.0


@contextmanager
def watched(run_dir: Path, folder: Path) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes every service of the run, once all of them answer."""
    endpoints = json.loads((run_dir / "endpoints.json").read_text())
    targets = {name: urlsplit(url).netloc for name, url in endpoints["probes"].items() if name != "redis"}
    port = free_port()
    targets["exporter"] = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "launcher", "exporter", "--port", str(port)]
    command += ["--redis-url", endpoints["redis_url"], "--run", endpoints["run"], "--every-s", "0.5"]
    with (run_dir / "logs" / "exporter.log").open("wb") as log:
        exporter = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        with PrometheusServer(folder / "prometheus", targets) as prometheus:
            until(lambda: prometheus.up() == prometheus.jobs)
            yield prometheus
    finally:
        exporter.terminate()
        exporter.wait()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not so within {WITHIN_S:.0f} s: {condition}")
        time.sleep(0.5)
