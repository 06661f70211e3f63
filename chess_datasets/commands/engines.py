"""Where commands do their work: in worker processes with an engine each, a reward service or a Ray cluster.

A reward service is always a separate process, called over gRPC; none of its code is imported.
"""

import asyncio
import math
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from chess_datasets.commands.positions import chosen_positions, report_exams
from chess_datasets.commands.settings.shared import EngineWorkSettings, RewardAddressSettings
from chess_datasets.jobs import Progress, WorkerEngine, engine_name
from chess_datasets.positions.numbered import (
    SHARD_SIZE,
    PositionRecord,
    RecordMaker,
    make_parts,
    make_records,
)
from chess_datasets.store.datasets import Parts
from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import Kind
from rookery.access import AccessSettings
from rookery.clients import RewardClient, ScoreItem
from rookery.clients.score_stream import Groups, GroupScorer, Key, each
from rookery.devices import usable_cores
from rookery.errors import RookeryError, SetupError
from rookery.processes.child import Child, ServiceCommand, Watchdog, last_lines
from rookery.processes.ports import Ports
from rookery.processes.workers import Workers, kept
from rookery.trace import Verdict

R = TypeVar("R", bound=PositionRecord)

_HOST = "127.0.0.1"
_START_S = 60.0
_POLL_S = 0.05


def _workers_of(settings: EngineWorkSettings) -> Workers:
    """The workers that --engines and --ray ask for; on this machine, no more than --count keeps busy."""
    if settings.ray:
        return Workers(settings.engines, ray=settings.ray)
    return Workers(min(settings.engines or usable_cores(), math.ceil(settings.count / SHARD_SIZE)))


@contextmanager
def made_parts(
    settings: EngineWorkSettings,
    kind: Kind[R],
    make: RecordMaker[R],
    *,
    stage: str,
    terms: dict[str, Any],
    has_engine: bool = True,
) -> Iterator[tuple[Parts[R], dict[str, Any]]]:
    """Makes the parts of a data set, and yields them with all terms. They are deleted after the block. `make`
    makes a record in a worker, with the worker's engine if it has one."""
    folder = open_folder(settings.out)
    with chosen_positions(settings) as (positions, origin), _workers_of(settings) as workers:
        terms = {"positions": origin, "count": settings.count, **terms}
        engine = None
        if has_engine:
            engine = WorkerEngine(settings.engine, next(workers.map(engine_name, [settings.engine])))
            terms["engine"] = engine.name
        parts = Parts(folder, kind, terms=terms)
        shards = partial(workers.map, partial(make_records, make, engine))
        with Progress() as progress:
            progress.begin(stage, unit=kind.name, total=settings.count)
            in_exams = make_parts(positions, parts, shards, wanted=settings.count, advance=progress.advance)
        if settings.exam:
            origin["in_exams"] = in_exams
            report_exams(in_exams)
        yield parts, terms
        parts.clear()


@asynccontextmanager
async def scorer_of(settings: RewardAddressSettings, *, nodes: int) -> AsyncIterator[GroupScorer]:
    """The scorer that --reward and --ray ask for. Raises `SetupError` if it cannot be reached or started."""
    if settings.ray:
        with Workers(ray=settings.ray) as workers:
            yield WorkerScorer(workers, nodes)
    else:
        async with reward_client(settings.reward, nodes=nodes) as client:
            yield client


@dataclass(frozen=True)
class WorkerScorer:
    """A reward service with one engine on each worker, which gets `_SHARD_GROUPS` groups at a time."""

    workers: Workers
    nodes: int

    async def stream(
        self, groups: Groups[Key], *, scheme: str = "", items: int = 2048
    ) -> AsyncGenerator[tuple[Key, list[Verdict | RookeryError]]]:
        """Like `RewardClient.stream`, in the order of the groups. Limits shards; `items` has no effect.
        Raises `SetupError` if the workers have different engines."""
        waiting: deque[tuple[list[Key], asyncio.Future[list[list[Verdict | RookeryError]]]]] = deque()
        engines: set[str] = set()
        async with aclosing(_shards(groups)) as shards:
            async for keys, shard in shards:
                scored = self.workers.submit(_score_shard, shard, scheme, self.nodes)
                waiting.append((keys, asyncio.wrap_future(scored)))
                if len(waiting) >= 4 * self.workers.jobs:
                    keys, result = waiting.popleft()
                    for pair in zip(keys, _check_engines(await result, engines), strict=True):
                        yield pair
        for keys, result in waiting:
            for pair in zip(keys, _check_engines(await result, engines), strict=True):
                yield pair


def _check_engines(
    scored: list[list[Verdict | RookeryError]], engines: set[str]
) -> list[list[Verdict | RookeryError]]:
    """Returns the verdicts as they are, and adds their engines to `engines`, which must remain one."""
    slots = chain.from_iterable(scored)
    engines.update(slot.engine.id for slot in slots if isinstance(slot, Verdict) and slot.engine)
    if len(engines) > 1:
        names = ", ".join(map(repr, sorted(engines)))
        raise SetupError(f"the workers have the engines {names}: install the same version on every machine")
    return scored


_SHARD_GROUPS = 16


async def _shards(groups: Groups[Key]) -> AsyncGenerator[tuple[list[Key], list[list[ScoreItem]]]]:
    keys, shard = list[Key](), list[list[ScoreItem]]()
    async for key, items in each(groups):
        keys.append(key)
        shard.append(list(items))
        if len(keys) == _SHARD_GROUPS:
            yield keys, shard
            keys, shard = [], []
    if keys:
        yield keys, shard


def _score_shard(shard: list[list[ScoreItem]], scheme: str, nodes: int) -> list[list[Verdict | RookeryError]]:
    """The verdicts of a shard's groups, from this process's own reward service."""
    runner, client = kept(_worker_service, nodes)

    async def score() -> list[list[Verdict | RookeryError]]:
        scored = {number: slots async for number, slots in client.stream(enumerate(shard), scheme=scheme)}
        return [scored[number] for number in range(len(shard))]

    return runner.run(score())


@contextmanager
def _worker_service(nodes: int) -> Iterator[tuple[asyncio.Runner, RewardClient]]:
    service = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            yield (
                runner,
                runner.run(service.enter_async_context(reward_client(None, nodes=nodes, engines=1))),
            )
        finally:
            runner.run(service.aclose())


@asynccontextmanager
async def reward_client(
    target: str | None, *, nodes: int = 1000, engines: int | None = None
) -> AsyncIterator[RewardClient]:
    """Yields a client of the reward service at `target`, or of one started (and later stopped) here.

    `engines` are those of one that is started (None: one per core). Raises `SetupError` if the service cannot
    be started, or does not answer at `target`.
    """
    if target is not None:
        async with RewardClient(target, access=AccessSettings().access) as client:
            if not await client.ready():
                raise SetupError(f"no reward service is ready at {target!r} (--reward)")
            yield client
        return
    with tempfile.TemporaryDirectory() as folder, Ports(_HOST) as ports:
        log, grpc_port = Path(folder) / "reward.log", ports.choose(0)
        flags = ["--port", 0, "--grpc-port", grpc_port, "--nodes", nodes]
        flags += ["--engines", engines] if engines else []
        argv = (sys.executable, "-m", "services.reward", *map(str, flags))
        guard = Watchdog()
        child = Child(ServiceCommand("reward", argv, log), guard)
        try:
            async with RewardClient(f"{_HOST}:{grpc_port}", access=AccessSettings().access) as client:
                await _until_ready(child, client, log)
                yield client
        finally:
            child.kill()
            guard.close()


async def _until_ready(child: Child, client: RewardClient, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not await client.ready():
        status = child.poll()
        if status is not None or time.monotonic() > deadline:
            what = f"it is not ready after {_START_S:g} s" if status is None else f"it ended with {status}"
            raise SetupError(": ".join((f"the reward service does not start: {what}", *last_lines(log, 3))))
        await asyncio.sleep(_POLL_S)
