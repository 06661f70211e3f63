"""Prometheus and `rookery exporter` beside a running `rookery up`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.conftest import ROOT, free_port
from tests.prometheus_server import PrometheusServer
from tests.waiting import until

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
            until(lambda: prometheus.up() == prometheus.jobs, within_s=WITHIN_S, every_s=0.5, of=exporter)
            yield prometheus
    finally:
        exporter.terminate()
        exporter.wait(60)
