"""What is done to a run, one fault after the other, and how the run is checked afterwards."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import redis

from rookery import failpoints
from services.trainer.versions import commits
from tests.chaos.cluster import BATCH, Cluster
from tests.chaos.disturbed import FAKETIME, Disturbed, NotRecoveredError
from tests.chaos.proxy import FAULTS

Running = TypeVar("Running", bound=Disturbed)
Inject = Callable[[Cluster, float], int]
"""Makes a fault that lasts so many seconds, and returns how often it struck."""


def kill_at(place: str, cluster: Cluster, lasts_s: float) -> int:
    """A process ends at a failpoint, when it passes it for the second time: the first is the start's."""
    archiver = place.startswith("archive")
    process = cluster.archiver if archiver else cluster.trainer
    assert process
    process.kill()
    process.join()
    if archiver:
        doomed = cluster.archiver = cluster.start_archiver(f"{place}=kill")
    else:
        doomed = cluster.trainer = cluster.start_trainer(f"{place}=kill@2")
    cluster.until(lambda: doomed.exitcode is not None, f"{place} is reached", supervised=False)
    if doomed.exitcode != -signal.SIGKILL:
        raise NotRecoveredError(f"{place}: the process ended by itself, with status {doomed.exitcode}")
    return 1


def kill_any_time(cluster: Cluster, lasts_s: float) -> int:
    for _ in range(3):
        time.sleep(cluster.random.random() * 0.5)
        for process in (cluster.trainer, cluster.archiver):
            assert process
            process.kill()
            process.join()
        cluster.ensure()
    return 6


def pause_the_trainer(cluster: Cluster, lasts_s: float) -> int:
    """It hangs; a second one must neither take its folder nor, with another folder, its run."""
    trainer = cluster.trainer
    assert trainer
    assert trainer.pid
    os.kill(trainer.pid, signal.SIGSTOP)
    rivals = [cluster.start_trainer(), cluster.start_trainer(run_dir=cluster.folder / "rival")]
    cluster.until(lambda: all(r.exitcode is not None for r in rivals), "rivals give up", supervised=False)
    if [rival.exitcode for rival in rivals] != [2, 2]:
        raise NotRecoveredError(f"two trainers: rivals ended with {[r.exitcode for r in rivals]}")
    time.sleep(lasts_s)
    os.kill(trainer.pid, signal.SIGCONT)
    return 3


def network(fault: str, cluster: Disturbed, lasts_s: float) -> int:
    before, began = cluster.proxy.injections, time.monotonic()
    with cluster.proxy.making(fault):
        while time.monotonic() - began < lasts_s or cluster.proxy.injections - before < 5:
            time.sleep(0.05)
            cluster.ensure()
    return cluster.proxy.injections - before


def fill_the_disk(cluster: Cluster, lasts_s: float) -> int:
    """No file may be longer than 8 KiB: the adapter does not fit."""
    assert cluster.trainer
    cluster.trainer.kill()
    cluster.trainer.join()
    trainer = cluster.start_trainer(file_bytes=8192)
    cluster.until(lambda: trainer.exitcode is not None, "the disk is full", supervised=False)
    if trainer.exitcode != 1:
        raise NotRecoveredError(f"disk full: the trainer ended with {trainer.exitcode}")
    return 1


def damage_the_version(cluster: Cluster, lasts_s: float) -> int:
    """The newest adapter is cut, then has a flipped bit: a trainer refuses both. Then it is whole again."""
    assert cluster.trainer
    cluster.trainer.kill()
    cluster.trainer.join()
    newest = list(commits.folders(cluster.run_dir / "adapters").values())[-1] / "adapter_model.safetensors"
    whole = newest.read_bytes()
    place = cluster.random.randrange(len(whole))
    flipped = whole[:place] + bytes([whole[place] ^ 1 << cluster.random.randrange(8)]) + whole[place + 1 :]
    for damaged in (whole[:place], flipped):
        newest.write_bytes(damaged)
        trainer = cluster.start_trainer()
        cluster.until(lambda t=trainer: t.exitcode is not None, "damage is refused", supervised=False)  # type: ignore[misc]
        if trainer.exitcode != 2:
            raise NotRecoveredError(f"damaged adapter: the trainer ended with {trainer.exitcode}")
    newest.write_bytes(whole)
    return 2


def fill_redis(cluster: Disturbed, lasts_s: float) -> int:
    """Redis refuses every write. Returns how many commands it refused."""
    with cluster.redis_client() as client:
        before = _refused(client)
        client.config_set("maxmemory", 1)
        began = time.monotonic()
        while (lasted_s := time.monotonic() - began) < lasts_s or (
            lasted_s < 2 * lasts_s and _refused(client) == before
        ):
            time.sleep(0.05)
        client.config_set("maxmemory", 0)
        return _refused(client) - before


def _refused(client: redis.Redis) -> int:
    return int(client.info("errorstats").get("errorstat_OOM", {}).get("count", 0))


def pause_redis(cluster: Disturbed, lasts_s: float) -> int:
    """Redis hangs. Returns 1 if it answers nobody meanwhile."""
    cluster.signal_redis(signal.SIGSTOP)
    time.sleep(lasts_s)
    stopped = cluster.redis_is_stopped()
    cluster.signal_redis(signal.SIGCONT)
    return int(stopped)


def jump_clock(cluster: Cluster, lasts_s: float) -> int:
    """The clock of Redis, the only one that the protocol uses, goes an hour forth, two back, and one forth.

    After each jump a trainer and an archiver start, and do a step.
    """
    steps = cluster.allowed // BATCH
    for left, offset_s in ((2, 3600), (1, -3600), (0, 0)):
        cluster.allow(steps - left)
        cluster.set_clock(offset_s)
        kill_any_time(cluster, lasts_s)
        cluster.settle(steps - left)
    return 3


def cut_redis_file(cluster: Cluster, lasts_s: float) -> int:
    """Redis is killed, and up to 4 KiB of what it wrote last are lost. Returns how many bytes."""
    time.sleep(cluster.random.random())
    cluster.signal_redis(signal.SIGKILL)
    file = max((cluster.folder / "redis").rglob("*.aof"), key=lambda path: path.stat().st_mtime_ns)
    whole = file.stat().st_size
    left = max(0, whole - cluster.random.randrange(1, 4096))
    os.truncate(file, left)
    cluster.start_redis()
    return whole - left


WINDOWS = {
    f"kill at {place}": partial(kill_at, place)
    for place in failpoints.PLACES
    if not place.startswith("rollouts")  # tests/integration/rollouts/test_process.py
}
IN_ORDER: dict[str, Inject] = {
    **WINDOWS,
    "kill at any time": kill_any_time,
    "trainer paused, two more": pause_the_trainer,
    "disk full": fill_the_disk,
    "adapter damaged": damage_the_version,
    "redis full": fill_redis,
    "redis paused": pause_redis,
    **({"clock jumps": jump_clock} if FAKETIME else {}),
    **{f"network: {fault}": partial(network, fault) for fault in FAULTS},
}
"""Faults after which the trainer gets the groups in their order, and the adapter has the same bytes."""
LOSSES: dict[str, Inject] = {"redis killed, file cut": cut_redis_file}
"""Faults that lose what Redis was told last: groups are made again, in another order."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the report."""

    fault: str
    injections: int
    recovered_s: float
    lost: int
    doubled: int


def strike(
    run: Running, name: str, inject: Callable[[Running, float], int], *, steps: int, lasts_s: float
) -> Row:
    """Makes a fault while the run goes on to `steps` steps, and checks the run when it is there."""
    run.ensure()
    run.allow(steps)
    injections = inject(run, lasts_s)
    began = time.monotonic()
    run.ensure()
    run.settle(steps)
    lost, doubled = run.check(steps)
    return Row(name, injections, time.monotonic() - began, lost, doubled)


def never_reached(cluster: Cluster) -> set[str]:
    """The failpoints that no process has passed."""
    hits = set(cluster.hits.read_text().split())
    return {place for place in failpoints.PLACES if not place.startswith("rollouts")} - hits


def adapter(run_dir: Path, step: int) -> bytes:
    return (run_dir / "adapters" / f"policy-v{step:06d}" / "adapter_model.safetensors").read_bytes()
