"""The archiver as a process, killed again and again while groups come and go: each is kept exactly once."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import read_rows
from chess_datasets.traces.archive import TraceArchive
from rookery.streams import RunStreams
from rookery.trace import TraceGroup
from tests.conftest import ROOT, free_port
from tests.integration.data.producer import make, settle_all
from tests.waiting import until

pytestmark = pytest.mark.redis

LIVES = 3
WAIT_S = 240.0
KEPT = 500
"""Groups that wait for the archive, at most: fewer than it lets Redis keep, however slowly it starts."""


class Process:
    """One life of `python -m services.data.archiver`."""

    def __init__(self, redis_url: str, out: str, environment: dict[str, str]) -> None:
        self.port = free_port()
        flags = ["--run", "r1", "--redis-url", redis_url, "--out", out, "--port", str(self.port)]
        flags += ["--file-groups", "5", "--file-age-s", "0.2"]
        argv = [sys.executable, "-m", "services.data.archiver", *flags]
        self.process = subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)

    def ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=WAIT_S).is_success
        except httpx.ConnectError:
            return False

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=WAIT_S)
        return self.process.returncode


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_killed_and_killed_again(
    place: str, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out = str(tmp_path / "archive") if place == "disk" else request.getfixturevalue("bucket")
    environment = dict(os.environ)
    streams = RunStreams(redis_url, "r1")
    published: list[TraceGroup] = []
    done = threading.Event()

    def live() -> None:
        """Rollouts publish, the trainer settles, and neither knows of the archive."""
        while not done.is_set():
            if streams.overview().kept < KEPT:
                published.extend(make(streams, 3, first=len(published)))
                settle_all(streams)
            time.sleep(0.05)

    archived = lambda: streams.counts().archive.get("archived", 0)  # noqa: E731
    rng = random.Random(place)
    with ThreadPoolExecutor(1) as threads:
        living = threads.submit(live)
        try:
            for _ in range(LIVES):
                before = archived()
                archiver = Process(redis_url, out, environment)
                try:
                    until(lambda before=before: archived() > before + 4)
                    time.sleep(rng.random() * 0.3)
                finally:
                    status = archiver.end(signal.SIGKILL)
                assert status == -signal.SIGKILL
        finally:
            done.set()
        living.result(timeout=WAIT_S)
    last = Process(redis_url, out, environment)
    until(last.ready)  # the one before may have left nothing to write
    until(lambda: streams.overview().unarchived == 0)
    metrics = httpx.get(f"http://127.0.0.1:{last.port}/metrics", timeout=WAIT_S).text
    assert "rookery_archive_groups_total" in metrics
    assert last.end(signal.SIGTERM) == 0

    archive, run = TraceArchive(open_folder(out)), streams.overview()
    assert (run.astray, run.archive_astray, run.kept, streams.groups.length()) == (0, 0, 0, 0)
    assert run.counts.archive["archived"] + run.counts.archive["before"] == len(published)
    kept = list(archive.groups(run="r1"))
    assert kept == published[run.counts.archive["before"] :]
    entries = Counter(
        e
        for v in archive.files()
        for e in [row["entry"] for row in read_rows(archive.folder, v.name, ("entry",))]
    )
    assert set(entries.values()) == {1}
    assert len(entries) == len(kept) > 5 * LIVES
