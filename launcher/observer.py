"""Observes a run from outside, through its probes, streams and metrics.

A thread replaces an immutable `Snapshot`. The display and the supervisor read the latest one.
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

from rookery.access import OPEN, REMEDY, Access
from rookery.errors import InvalidInput, SetupError, Unavailable, cause_message
from rookery.plots.steps import METRICS_FILE, read_strength
from rookery.streams import RunStreams
from rookery.streams.state import Overview

logger = logging.getLogger(__name__)

TIMEOUT_S = 2.0


def probe(url: str, http: httpx.Client) -> str | None:
    """None if the service is ready, else the reason why it is not."""
    try:
        response = http.get(url, timeout=TIMEOUT_S)
        if response.is_success:
            return None
        return str(response.json().get("reason") or response.status_code)
    except httpx.ConnectError:
        return "not listening yet"
    except (httpx.HTTPError, ValueError) as error:
        return cause_message(error)


STARTING_EVERY_S = 0.5
READY_EVERY_S = 2.0
"""Seconds between two refreshes, while a service is not ready and when all are. Each costs the run time."""

WINDOW = 10
"""How many first and last steps are kept. A run may have too many to keep them all."""
IDLE_COUNTERS = {
    "rookery_backpressure_seconds_total": "backpressure",
    "rookery_positions_wait_seconds_total": "positions wait",
    "rookery_peers_wait_seconds_total": "peers wait",
}
SERVER_BEHIND = "rookery_server_behind_versions"
WAITING = "rookery_waiting_seconds"


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one moment.

    `redis` is the version of the Redis, or what is wrong with it.
    `probes` has None for a service that is ready, or else the reason why it is not. `served` is the version
    that inference serves. `steps` are the trainer's first and last `WINDOW` records, oldest first, and
    `strength` the versions evaluated so far, as `read_strength` returns them. `idle_s` is how long the
    rollouts waited, by cause. `behind` is how many versions each inference server is behind. `waits` are the
    seconds of the waits that last longer than expected: who waits for what.
    """

    redis: str = ""
    probes: Mapping[str, str | None] = field(default_factory=dict)
    overview: Overview | None = None
    served: int | None = None
    steps: tuple[Mapping[str, Any], ...] = ()
    strength: tuple[Mapping[str, Any], ...] = ()
    idle_s: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, float] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)


class StepLog:
    """Reads the trainer's metrics file incrementally: each `refresh` reads only the new lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._first: list[Mapping[str, Any]] = []
        self._last: deque[Mapping[str, Any]] = deque(maxlen=WINDOW)

    def refresh(self) -> tuple[Mapping[str, Any], ...]:
        """The first and the last `WINDOW` records so far. A half-written last line is left for later.

        Raises `InvalidInput` if another line is not a JSON object.
        """
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                if not line.strip():
                    continue
                try:
                    step: dict[str, Any] = dict(json.loads(line))
                except (TypeError, ValueError) as error:
                    text = line[:120].decode(errors="replace").rstrip()
                    raise InvalidInput(f"{self._path}: not a step: {error!r} in {text!r}") from error
                (self._first if len(self._first) < WINDOW else self._last).append(step)
        return (*self._first, *self._last)


class Observer:
    """Refreshes `snapshot` in a thread of its own, from `start` to `close`."""

    def __init__(
        self,
        probe_urls: Mapping[str, str],
        *,
        redis_url: str,
        run: str,
        run_dir: Path | None,
        access: Access = OPEN,
    ) -> None:
        self._probe_urls = dict(probe_urls)
        self._stopping = threading.Event()
        self._run = RunStreams(redis_url, run, once=True)
        self._run_dir = run_dir
        self._log = StepLog(run_dir / METRICS_FILE) if run_dir else None
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)
        self._http = httpx.Client(headers=access.headers, verify=access.client_tls(), timeout=TIMEOUT_S)
        self._looking = threading.Lock()
        self.snapshot = Snapshot()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5 * TIMEOUT_S)
        self._http.close()
        self._run.close()

    def look(self) -> Snapshot:
        """Queries all services once. Values of a service that does not answer are left out. Raises
        `SetupError` if Redis refuses the user or password."""
        rollouts = self._samples("rollouts", {*IDLE_COUNTERS, WAITING})
        trainer = self._samples("trainer", {SERVER_BEHIND, WAITING})
        fault, version, overview = self._redis()
        probes = {
            name: fault if name == "redis" else probe(url, self._http)
            for name, url in self._probe_urls.items()
        }
        try:
            served = self._served()
        except SetupError as error:
            served, probes["inference"] = None, str(error)
        return Snapshot(
            redis=fault or version,
            probes=probes,
            overview=overview,
            served=served,
            steps=self._log.refresh() if self._log else (),
            strength=self._strength(),
            idle_s={IDLE_COUNTERS[s.name]: s.value for s in rollouts if s.name in IDLE_COUNTERS},
            behind={s.labels["server"]: s.value for s in trainer if s.name == SERVER_BEHIND},
            waits={
                f"{name} for {s.labels['what']} from {s.labels['peer']}": s.value
                for name, samples in (("rollouts", rollouts), ("trainer", trainer))
                for s in samples
                if s.name == WAITING
            },
        )

    def refresh(self) -> None:
        """Replaces `snapshot` by a new one. Values that could not be read are kept from the previous one."""
        with self._looking:
            self.snapshot = self._with_previous_values(self.look())

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self.refresh()
            except Exception:  # the thread must survive an invalid answer: the supervisor needs the probes
                logger.exception("could not read the state of the run")
            ready = not any(self.snapshot.probes.values())
            self._stopping.wait(READY_EVERY_S if ready else STARTING_EVERY_S)

    def _with_previous_values(self, fresh: Snapshot) -> Snapshot:
        old = self.snapshot
        return replace(
            fresh,
            overview=fresh.overview or old.overview,
            served=old.served if fresh.served is None else fresh.served,
            idle_s=fresh.idle_s or old.idle_s,
        )

    def _redis(self) -> tuple[str | None, str, Overview | None]:
        """What is wrong with Redis, else None; its version; and what it tells of the run."""
        version = ""
        try:
            overview = self._run.overview(atomic=False)
        except Unavailable as error:
            return str(error), version, None
        with suppress(SetupError, Unavailable):  # a user of Redis may lack INFO
            version = str(self._run.redis.server_version())
        return "full: it refuses writes" if overview.full else None, version, overview

    def _strength(self) -> tuple[Mapping[str, Any], ...]:
        try:
            return tuple(read_strength(self._run_dir)) if self._run_dir else ()
        except InvalidInput as error:
            logger.warning("%s", error)
            return ()

    def _served(self) -> int | None:
        url = self._probe_urls.get("inference")
        if url is None:
            return None
        try:
            answer = self._http.get(url.replace("/readyz", "/policy"))
            if answer.status_code == 401:
                raise SetupError(f"refuses the token: {REMEDY}")
            return int(answer.raise_for_status().json()["version"])
        except (httpx.HTTPError, ValueError, KeyError):
            return None

    def _samples(self, service: str, names: Collection[str]) -> list[Sample]:
        """The samples of the named metrics of a service; empty if it does not answer."""
        url = self._probe_urls.get(service)
        if url is None:
            return []
        try:
            text = self._http.get(url.replace("/readyz", "/metrics")).raise_for_status().text
        except httpx.HTTPError:
            return []
        families = text_string_to_metric_families(text)
        return [sample for family in families for sample in family.samples if sample.name in names]
