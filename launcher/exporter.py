"""`rookery exporter`: the streams of a run as Prometheus metrics, one process for the run.

The services export what they do themselves; this is what lies between them, and goes on when they stop.
"""

import asyncio
import threading
from collections.abc import Iterator

from prometheus_client import Gauge
from pydantic import PositiveFloat
from pydantic_settings import SettingsConfigDict

from rookery import __version__, metrics
from rookery.errors import Unavailable
from rookery.logs import configure
from rookery.serving import Service, add_probes, serve
from rookery.settings import Port, RunSettings
from rookery.streams import RunStreams
from rookery.streams.account import Counts, Overview
from rookery.streams.backlog import Backlog

STREAMS = ("positions", "traces", "dead")

EXPECTED = ("dropped:stale", "dead:positions", "dead:traces")
"""Results that are shown before their first group: what grows from nothing has no rate."""

Figure = tuple[Gauge, tuple[str, ...], float]
"""A gauge, the values of its labels, its value."""


class ExporterSettings(RunSettings):
    """The streams of a run as Prometheus metrics: length, lag, age, consumers, what became of groups."""

    model_config = SettingsConfigDict(env_prefix="EXPORTER_")

    host: str = "127.0.0.1"
    """Address of the probes and metrics."""
    port: Port = 8007
    """Port of the probes and metrics; 0 picks a free one."""
    every_s: PositiveFloat = 2.0
    """Seconds between two looks at Redis."""


class Exporter:
    """Sets the gauges, and takes back those of consumers and results that are no more."""

    def __init__(self, streams: RunStreams, *, every_s: float) -> None:
        self._streams = streams
        self._every_s = every_s
        self._shown: set[tuple[Gauge, tuple[str, ...]]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Looks until told to stop; waits out an absent Redis."""
        while not stopping.is_set():
            try:
                await asyncio.to_thread(self.look)
            except Unavailable:
                if not stopping.is_set():
                    raise
            try:
                await asyncio.wait_for(stopping.wait(), self._every_s)
            except TimeoutError:
                continue

    def look(self) -> None:
        """One look at everything."""
        figures = list(run_figures(self._streams.overview()))
        for stream in STREAMS:
            figures += stream_figures(stream, self._streams.backlog(stream))
        for gauge, labels, value in figures:
            (gauge.labels(*labels) if labels else gauge).set(value)
        shown = {(gauge, labels) for gauge, labels, _ in figures if labels}
        for gauge, labels in self._shown - shown:
            gauge.remove(*labels)
        self._shown = shown


def stream_figures(stream: str, backlog: Backlog) -> Iterator[Figure]:
    """Of one stream."""
    yield metrics.STREAM_LENGTH, (stream,), backlog.length
    yield metrics.STREAM_OLDEST_S, (stream,), backlog.oldest_s
    for group in backlog.groups:
        yield metrics.STREAM_LAG, (stream, group.name), group.lag
        for consumer in group.consumers:
            labels = (stream, group.name, consumer.name)
            yield metrics.STREAM_PENDING, labels, consumer.pending
            yield metrics.CONSUMER_IDLE_S, labels, consumer.idle_s


def run_figures(run: Overview) -> Iterator[Figure]:
    """Of the run's account."""
    for result, groups in results(run.counts).items():
        yield metrics.RUN_GROUPS, (result,), groups
    yield metrics.RUN_ASTRAY, (), run.astray + run.archive_astray


def results(counts: Counts) -> dict[str, int]:
    """Groups by what became of them, as the run's `counts` name it."""
    return {
        **dict.fromkeys(EXPECTED, 0),
        "generated": counts.generated,
        "trained": counts.trained,
        **{f"dropped:{reason}": groups for reason, groups in counts.dropped.items()},
        **{f"dead:{stream}": groups for stream, groups in counts.dead.items()},
        **{f"archive:{result}": groups for result, groups in counts.archive.items()},
    }


def export(settings: ExporterSettings) -> int:
    """Exports until SIGINT or SIGTERM; the exit status."""
    configure("exporter")
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: ExporterSettings) -> None:
    from fastapi import FastAPI

    given_up = threading.Event()
    streams = RunStreams(settings.redis_url, settings.run, stopping=given_up)

    async def give_up(stopping: asyncio.Event) -> None:
        await stopping.wait()
        given_up.set()

    async def ready() -> str | None:
        try:
            await asyncio.to_thread(streams.ping, once=True)
        except Unavailable as error:
            return str(error)
        return None

    app = FastAPI(title="Rookery exporter", version=__version__)
    add_probes(app, ready=ready)
    await serve(
        Service(
            name="exporter",
            app=app,
            host=settings.host,
            port=settings.port,
            port_setting="--port (EXPORTER_PORT)",
            background=(give_up, Exporter(streams, every_s=settings.every_s).run),
        )
    )
