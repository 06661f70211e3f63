"""A run disturbed for long, without an end of its processes: nothing may grow, nothing become slower."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.table import Table

from services.trainer.tiny import build_tiny
from tests.chaos.cluster import Cluster, NotRecoveredError
from tests.chaos.faults import IN_ORDER

FAULTS = (
    "network: delay",
    "network: cut",
    "network: half-close",
    "network: lose-reply",
    "redis full",
    "redis paused",
)
SAMPLE_S = 5.0
WARM_UP = 0.2
"""The first samples, as a share, are left out: caches fill."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A quantity: its mean over the first and the last quarter, and its slope per hour, by least squares."""

    name: str
    first: float
    last: float
    slope: float


def soak(folder: Path, *, seed: int, minutes: float, fault_every_s: float = 60.0) -> Iterator[Growth]:
    """Makes a fault every `fault_every_s` for `minutes`, and yields how each quantity developed.

    Raises:
        NotRecoveredError: a process ended, or the account does not hold.
    """
    samples: list[dict[str, float]] = []
    model = build_tiny(folder / "model", seed=3, layers=2)
    with Cluster(folder, model, seed=seed, fresh=True) as cluster:
        cluster.ensure()
        cluster.allowed = 10**9
        cluster.until(lambda: (cluster.streams.overview().committed or 0) > 3, "the run begins")
        processes = cluster.processes()
        began = struck = time.monotonic()
        while (now := time.monotonic()) - began < 60 * minutes:
            if now - struck >= fault_every_s:
                struck, name = now, cluster.random.choice(FAULTS)
                IN_ORDER[name](cluster, 1.0)
            time.sleep(SAMPLE_S)
            samples.append({"s": time.monotonic() - began, **_sample(cluster, processes)})
        if cluster.processes().keys() != processes.keys() or not all(
            p.is_running() for p in processes.values()
        ):
            raise NotRecoveredError("a process ended")
        if (run := cluster.streams.overview()).astray:
            raise NotRecoveredError(f"the account does not hold: {run}")
    samples = samples[int(WARM_UP * len(samples)) :]
    quarter = max(1, len(samples) // 4)
    for name in samples[0].keys() - {"s"}:
        values = [sample[name] for sample in samples]
        slope = statistics.linear_regression([sample["s"] / 3600 for sample in samples], values).slope
        if name == "steps":
            yield Growth(
                "steps a second", *(_rate(part) for part in (samples[:quarter], samples[-quarter:])), 0.0
            )
        else:
            yield Growth(name, statistics.fmean(values[:quarter]), statistics.fmean(values[-quarter:]), slope)


def _sample(cluster: Cluster, processes: dict[str, psutil.Process]) -> dict[str, float]:
    figures: dict[str, float] = {"steps": cluster.streams.overview().committed or 0}
    for name, process in processes.items():
        figures[f"{name}: memory, MiB"] = process.memory_info().rss / 2**20
        figures[f"{name}: files and sockets"] = process.num_fds()
    with cluster.redis_client() as client:
        figures["redis: keys"] = client.dbsize()
        figures["redis: data, MiB"] = client.info("memory")["used_memory"] / 2**20
    return figures


def _rate(samples: list[dict[str, float]]) -> float:
    seconds = samples[-1]["s"] - samples[0]["s"]
    return (samples[-1]["steps"] - samples[0]["steps"]) / seconds if seconds else 0.0


def table(growths: list[Growth]) -> Table:
    """The report."""
    report = Table("quantity", "first quarter", "last quarter", "slope an hour", box=None)
    for growth in sorted(growths, key=lambda growth: growth.name):
        report.add_row(growth.name, *(f"{value:,.2f}" for value in (growth.first, growth.last, growth.slope)))
    return report
