"""What the tests of whole runs share: a `rookery` process, a copy of its groups, Prometheus beside it."""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import redis

from rookery.codec import decode_group
from rookery.trace import TraceGroup
from tests import processes
from tests.conftest import free_port
from tests.prometheus_server import PrometheusServer
from tests.waiting import until

ROOKERY = (sys.executable, "-m", "launcher")

started = partial(processes.started, "launcher")
"""A `rookery` command, of which nothing is left after the block."""


def logs(folder: Path) -> str:
    """The last words of each log below a folder."""
    return "\n".join(f"{file}: {file.read_text()[-1500:]}" for file in sorted(folder.rglob("*.log")))


@contextmanager
def copied_groups(url: str, run: str) -> Iterator[list[TraceGroup]]:
    """Every group from the moment it is published: settled ones leave the stream."""
    groups: list[TraceGroup] = []
    stop = threading.Event()

    def copy() -> None:
        last = b"0"
        with contextlib.closing(redis.Redis.from_url(url)) as client:
            while not stop.is_set():
                for _, entries in client.xread({f"rookery:{run}:traces": last}, block=200):  # type: ignore[union-attr]
                    for entry_id, fields in entries:
                        last = entry_id
                        groups.append(decode_group(fields[b"data"]))

    watcher = threading.Thread(target=copy)
    watcher.start()
    try:
        yield groups
    finally:
        stop.set()
        watcher.join(60)


@contextmanager
def watched(run_dir: Path, folder: Path) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes every service of the run, once all of them answer."""
    endpoints = json.loads((run_dir / "endpoints.json").read_text())
    targets = {name: urlsplit(url).netloc for name, url in endpoints["probes"].items() if name != "redis"}
    port = free_port()
    targets["exporter"] = f"127.0.0.1:{port}"
    flags = ("--redis-url", endpoints["redis_url"], "--run", endpoints["run"], "--every-s", "0.5")
    log = run_dir / "logs" / "exporter.log"
    with (
        started("exporter", "--port", port, *flags, log=log) as exporter,
        PrometheusServer(folder / "prometheus", targets) as prometheus,
    ):
        until(lambda: prometheus.up() == prometheus.jobs, within_s=240, every_s=0.5, of=exporter, log=log)
        yield prometheus
