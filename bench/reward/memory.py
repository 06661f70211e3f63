"""Resident memory: of the process at rest, of an engine, of items that wait, of analyses remembered."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import psutil

from bench.reward.cached import NODES
from bench.reward.replica import Replica
from bench.reward.routes import TIMEOUT_S, GrpcBatch, raw_call
from bench.reward.workload import Workload

QUEUED = 4000
"""Below the service's own bound of 4,096 searches."""

FOREVER_NODES = 100_000_000
"""A search that outlives the measurement."""

REMEMBERED = 4000


@dataclass(frozen=True, slots=True)
class Memory:
    """In MB (10^6 bytes). `engine_own_mb` is what another engine adds; `item_kb` is an item on the wire."""

    process_mb: float
    engine_rss_mb: float
    engine_own_mb: float
    queued_mb_per_1000: float
    remembered_mb_per_1000: float
    item_kb: float


def run_memory(workload: Workload, *, engines: int) -> Memory:
    """Measures replicas started for it alone."""
    with Replica(engines=engines, nodes=NODES) as replica:
        process_mb = replica.rss_bytes() / 1e6
        own = [psutil.Process(pid).memory_full_info() for pid in replica.engines]
        remembered = _remembered_mb(replica, workload)
    queued, item_kb = _queued_mb(workload)
    return Memory(
        process_mb=process_mb,
        engine_rss_mb=max(info.rss for info in own) / 1e6,
        engine_own_mb=max(info.uss for info in own) / 1e6,
        queued_mb_per_1000=queued,
        remembered_mb_per_1000=remembered,
        item_kb=item_kb,
    )


def _remembered_mb(replica: Replica, workload: Workload) -> float:
    """Growth for 1,000 questions answered, beyond what the first 1,000 take for buffers of all kinds."""
    route = GrpcBatch(replica, batch=64, in_flight=4)
    route.send(route.prepare_batch(workload.questions(0, 1000)))
    before = replica.rss_bytes()
    route.send(route.prepare_batch(workload.questions(1000, REMEMBERED)))
    return (replica.rss_bytes() - before) / 1e6 / (REMEMBERED / 1000)


def _queued_mb(workload: Workload) -> tuple[float, float]:
    """Growth for 1,000 items that wait for an engine, and the size of one in kilobytes."""
    flags = ("--deadline-s", "3600")
    with Replica(*flags, engines=1, nodes=FOREVER_NODES) as replica:
        route = GrpcBatch(replica, batch=64, in_flight=4)
        requests = route.prepare_batch(workload.questions(0, QUEUED))
        before = replica.rss_bytes()
        with grpc.insecure_channel(replica.grpc) as channel:
            call = raw_call(channel, "ScoreBatch")
            calls = [call.future(request, timeout=TIMEOUT_S) for request in requests]
            _wait_until(lambda: replica.metric("rookery_reward_queue_depth") >= QUEUED * 0.99)
            grown = replica.rss_bytes() - before
            for waiting in calls:
                waiting.cancel()
        replica.kill()
    return grown / 1e6 / (QUEUED / 1000), sum(map(len, requests)) / QUEUED / 1000


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError("the items never came to wait for the engine")
        time.sleep(0.2)
