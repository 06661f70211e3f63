"""What is going on in a run, read from outside: probes, streams, metrics files.

A thread refreshes one immutable `Snapshot`; screens and the supervisor only ever read the last one.
"""

import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from launcher.probes import TIMEOUT_S, probe
from rookery.errors import Unavailable
from rookery.streams import RunStreams
from rookery.streams.account import Overview

logger = logging.getLogger(__name__)

STARTING_EVERY_S = 0.5
READY_EVERY_S = 2.0
"""Between two looks, while somebody is not ready and when everybody is: looking costs the run its time."""

METRICS_FILE = "metrics.jsonl"
IDLE_COUNTERS = {
    "rookery_backpressure_seconds_total": "backpressure",
    "rookery_positions_wait_seconds_total": "positions wait",
    "rookery_peers_wait_seconds_total": "peers wait",
}


@dataclass(frozen=True)
class Snapshot:
    """The last look at a run. `steps` are the trainer's records, oldest first; `idle_s` the rollouts'."""

    probes: Mapping[str, str | None] = field(default_factory=dict)
    overview: Overview | None = None
    served: int | None = None
    steps: tuple[Mapping[str, Any], ...] = ()
    idle_s: Mapping[str, float] = field(default_factory=dict)


class StepLog:
    """Reads the lines that the trainer has added to its metrics file since the last time."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.steps: list[dict[str, Any]] = []

    def refresh(self) -> tuple[Mapping[str, Any], ...]:
        """All records so far; a half-written last line waits for its end."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return tuple(self.steps)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.steps += [json.loads(line) for line in whole.splitlines() if line.strip()]
        return tuple(self.steps)


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
            idle_s=self._idle(),
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

    def _idle(self) -> dict[str, float]:
        url = self._probe_urls.get("rollouts")
        if url is None:
            return {}
        try:
            text = self._http.get(url.replace("/readyz", "/metrics")).raise_for_status().text
        except httpx.HTTPError:
            return {}
        return dict(_counters(text, IDLE_COUNTERS))


def _counters(text: str, names: Mapping[str, str]) -> Iterable[tuple[str, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in names:
                yield names[sample.name], float(sample.value)
