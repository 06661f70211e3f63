"""`rookery exporter`: exports the streams of a run as Prometheus metrics. One process per run is enough.

Each service exports metrics of its own work. This process exports the state of the streams between them,
also while services are down.
"""

import asyncio
from collections.abc import Iterator

from prometheus_client import Gauge
from pydantic import PositiveFloat

from rookery import metrics
from rookery.access import AccessSettings
from rookery.errors import Unavailable
from rookery.retries import pause
from rookery.serving import background_service, serve
from rookery.settings import Port, RunSettings
from rookery.streams import RunStreams
from rookery.streams.state import Backlog, Counts, Overview

STREAMS = ("positions", "traces", "dead")

EXPECTED = ("dropped:stale", "dead:positions", "dead:traces")
"""Results exported as 0 before their first group. Otherwise Prometheus would miss the first increase."""

Figure = tuple[Gauge, tuple[str, ...], float]
"""A gauge, its label values and its value."""


class ExporterSettings(RunSettings, AccessSettings, env_prefix="EXPORTER_"):
    """Export the streams of a run as Prometheus metrics: length, lag, age, consumers, results of groups."""

    host: str = "127.0.0.1"
    """Address of the probes and metrics."""
    port: Port = 8008
    """Port of the probes and metrics; 0 picks a free one."""
    every_s: PositiveFloat = 2.0
    """Seconds between two reads of Redis."""


class Exporter:
    """Sets the gauges, and removes those of consumers and results that no longer exist."""

    def __init__(self, run: RunStreams, *, every_s: float) -> None:
        self._run = run
        self._every_s = every_s
        self._labelled: set[tuple[Gauge, tuple[str, ...]]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Updates the gauges until `stopping` is set. Waits while Redis is unavailable."""
        while not stopping.is_set():
            try:
                await asyncio.to_thread(self.look)
            except Unavailable:
                if not stopping.is_set():
                    raise
            await pause(stopping, self._every_s)

    def look(self) -> None:
        """Reads Redis once and updates all gauges."""
        figures = list(run_figures(self._run.overview(atomic=False)))
        for stream in STREAMS:
            figures += stream_figures(stream, self._run.backlog(stream))
        for gauge, labels, value in figures:
            (gauge.labels(*labels) if labels else gauge).set(value)
        labelled = {(gauge, labels) for gauge, labels, _ in figures if labels}
        for gauge, labels in self._labelled - labelled:
            gauge.remove(*labels)
        self._labelled = labelled


def stream_figures(stream: str, backlog: Backlog) -> Iterator[Figure]:
    """The metrics of one stream."""
    yield metrics.STREAM_LENGTH, (stream,), backlog.length
    yield metrics.STREAM_OLDEST_S, (stream,), backlog.oldest_s
    for group in backlog.groups:
        yield metrics.STREAM_LAG, (stream, group.name), group.lag
        for consumer in group.consumers:
            labels = (stream, group.name, consumer.name)
            yield metrics.STREAM_PENDING, labels, consumer.pending
            yield metrics.CONSUMER_IDLE_S, labels, consumer.idle_s


def run_figures(run: Overview) -> Iterator[Figure]:
    """The metrics of the run: groups by result, groups that are unaccounted for, and whether it has ended."""
    for result, groups in groups_by_result(run.counts).items():
        yield metrics.RUN_GROUPS, (result,), groups
    yield metrics.RUN_ENDED, (), run.ended
    yield metrics.RUN_ASTRAY, (), run.astray + run.archive_astray


def groups_by_result(counts: Counts) -> dict[str, int]:
    """The number of groups by result, named as in the run's `counts` hash."""
    return {
        **dict.fromkeys(EXPECTED, 0),
        "generated": counts.generated,
        "trained": counts.trained,
        **{f"dropped:{reason}": groups for reason, groups in counts.dropped.items()},
        **{f"dead:{stream}": groups for stream, groups in counts.dead.items()},
        **{f"archive:{result}": groups for result, groups in counts.archive.items()},
    }


async def export(settings: ExporterSettings) -> None:
    """Exports until SIGINT or SIGTERM."""
    run = RunStreams(settings.redis_url, settings.run)
    await serve(
        background_service(
            settings,
            "exporter",
            run.redis.stop_waiting,
            Exporter(run, every_s=settings.every_s).run,
            ready=run.redis.unreachable,
        )
    )
