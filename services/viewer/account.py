"""What Redis knows of a run: the account of its groups, and its dead letters."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

from rookery.errors import RookeryError, Unavailable
from rookery.streams import RunStreams
from services.viewer.runs import RunFolder


def redis_url(run: RunFolder, *, given: str = "") -> str:
    """The address of a run's Redis: the one that was given, or that of its last start. Empty if unknown."""
    return given or str(run.read_json("endpoints.json").get("redis_url", ""))


def account(run: RunFolder, url: str) -> dict[str, Any] | None:
    """The account of a run; None if Redis is not up, or knows nothing of it."""
    if not url:
        return None
    with closing(RunStreams(url, run.name)) as streams:
        try:
            streams.ping(once=True)
            overview = streams.overview()
        except RookeryError:
            return None
    known = asdict(overview) | {"astray": overview.astray, "archive_astray": overview.archive_astray}
    return known if overview.counts.generated else None


@contextmanager
def streams_of(run: RunFolder, url: str) -> Iterator[RunStreams]:
    """The streams of a run.

    Raises:
        Unavailable: Redis is not known, or not up.
    """
    if not url:
        raise Unavailable(f"the Redis of run {run.name!r} is not known: start the viewer with --redis-url")
    with closing(RunStreams(url, run.name)) as streams:
        streams.ping(once=True)
        yield streams
