"""What is going on in a run, read from outside: probes, streams, metrics files.

A thread refreshes one immutable `Snapshot`; screens and the supervisor only ever read the last one.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from launcher.probes import TIMEOUT_S, probe
from rookery.errors import Unavailable
from rookery.streams import RunStreams
from rookery.streams.account import Overview

logger = logging.getLogger(__name__)

STARTING_EVERY_S = 0.5
READY_EVERY_S = 2.0
"""Between two looks, while somebody is not ready and when everybody is: looking costs the run its time."""

METRICS_FILE = "metrics.jsonl"
WINDOW = 10
"""Steps that are kept of the beginning and of the end: a run may be long."""
IDLE_COUNTERS = {
    "rookery_backpressure_seconds_total": "backpressure",
    "rookery_positions_wait_seconds_total": "positions wait",
    "rookery_peers_wait_seconds_total": "peers wait",
}
SERVER_BEHIND = "rookery_server_behind_versions"


@dataclass(frozen=True)
class Snapshot:
    """The last look at a run. `steps` are the trainer's first and last `WINDOW` records, oldest first;
    `idle_s` is the rollouts'; `behind` are versions that each inference server has yet to take."""

    probes: Mapping[str, str | None] = field(default_factory=dict)
    overview: Overview | None = None
    served: int | None = None
    steps: tuple[Mapping[str, Any], ...] = ()
    idle_s: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, float] = field(default_factory=dict)


class StepLog:
    """Reads the lines that the trainer has added to its metrics file since the last time."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._first: list[Mapping[str, Any]] = []
        self._last: deque[Mapping[str, Any]] = deque(maxlen=WINDOW)

    def refresh(self) -> tuple[Mapping[str, Any], ...]:
        """The first and the last `WINDOW` records so far; a half-written last line waits for its end."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                if line.strip():
                    (self._first if len(self._first) < WINDOW else self._last).append(json.loads(line))
        return (*self._first, *self._last)


class Observer:
    """Looks now and then, in a thread of its own, from `start` to `close`."""

    def __init__(
        self, probe_urls: Mapping[str, str], *, redis_url: str, run: str, run_dir: Path | None
    ) -> None:
        self._probe_urls = dict(probe_urls)
        self._stopping = threading.Event()
        self._streams = RunStreams(redis_url, run, stopping=self._stopping)
        self._log = StepLog(run_dir / METRICS_FILE) if run_dir else None
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)
        self._http = httpx.Client(timeout=TIMEOUT_S)
        self._looking = threading.Lock()
        self.snapshot = Snapshot()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns when it looks no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5 * TIMEOUT_S)
        self._http.close()

    def look(self) -> Snapshot:
        """Asks everyone once. What does not answer is absent from the snapshot."""
        return Snapshot(
            probes={name: probe(url, self._http) for name, url in self._probe_urls.items()},
            overview=self._overview(),
            served=self._served(),
            steps=self._log.refresh() if self._log else (),
            idle_s={IDLE_COUNTERS[s.name]: s.value for s in self._samples("rollouts", IDLE_COUNTERS)},
            behind={s.labels["server"]: s.value for s in self._samples("trainer", (SERVER_BEHIND,))},
        )

    def refresh(self) -> None:
        """Makes `snapshot` of this moment."""
        with self._looking:
            self.snapshot = self._keep_known(self.look())

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self.refresh()
            except Exception:  # the boundary of the thread: a strange answer must not blind the supervisor
                logger.exception("could not look at the run")
            ready = not any(self.snapshot.probes.values())
            self._stopping.wait(READY_EVERY_S if ready else STARTING_EVERY_S)

    def _keep_known(self, fresh: Snapshot) -> Snapshot:
        old = self.snapshot
        return replace(
            fresh,
            overview=fresh.overview or old.overview,
            served=old.served if fresh.served is None else fresh.served,
            idle_s=fresh.idle_s or old.idle_s,
        )

    def _overview(self) -> Overview | None:
        try:
            self._streams.ping(once=True)
            return self._streams.overview()
        except Unavailable:
            return None

    def _served(self) -> int | None:
        url = self._probe_urls.get("inference")
        if url is None:
            return None
        try:
            return int(self._http.get(url.replace("/readyz", "/policy")).raise_for_status().json()["version"])
        except (httpx.HTTPError, ValueError, KeyError):
            return None

    def _samples(self, service: str, names: Collection[str]) -> list[Sample]:
        """Those metrics of a service; none where it does not answer."""
        url = self._probe_urls.get(service)
        if url is None:
            return []
        try:
            text = self._http.get(url.replace("/readyz", "/metrics")).raise_for_status().text
        except httpx.HTTPError:
            return []
        families = text_string_to_metric_families(text)
        return [sample for family in families for sample in family.samples if sample.name in names]
