"""One worker and two: annotation and scoring, on this machine and on a Ray cluster, beside linear."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, contextmanager, nullcontext
from functools import partial
from statistics import median
from typing import Any

import chess

from bench.usage import family_s
from chess_datasets.annotate.annotating import AnnotationRecipe
from chess_datasets.annotate.study import Effort
from chess_datasets.commands.engines import WorkerScorer, reward_client
from chess_datasets.jobs import WorkerEngine
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.positions.numbered import SHARD_SIZE, make_records
from rookery.clients import ScoreItem
from rookery.clients.score_stream import GroupScorer
from rookery.processes.workers import Workers
from rookery.trace import Position

TARGET = 0.9
WORKERS = (1, 2)
ANSWERS = 8

Do = Callable[[list[Position]], None]


def measure(*, annotations: int, groups: int, nodes: int, rounds: int) -> dict[str, Any]:
    """Rates, and their ratio to linear, of each kind of work here and on a Ray cluster of as many nodes.

    All sides do the same work, in turns. Linear is twice the rate with twice the workers. Processor time for
    the same work says what the spreading costs, also where the machine has other work to do.
    """
    generator = PositionGenerator(1, least_moves=2)
    work = {"annotation": (annotations, _annotating), "scoring": (groups, _scoring)}
    report = {}
    for name, (count, opened) in work.items():
        positions = [generator.position(number) for number in range(count + 4 * SHARD_SIZE)]
        warm, asked = positions[count:], positions[:count]
        measured: dict[str, dict[int, list[tuple[float, float]]]] = {}
        for _ in range(rounds):
            for side, cluster in SIDES.items():
                for workers in WORKERS:
                    with cluster(workers) as at, opened(at, workers, nodes) as do:
                        do(warm)
                        times = _times(do, asked)
                    measured.setdefault(side, {}).setdefault(workers, []).append(times)
                    print(f"{name}, {side}, {workers}: {count} in {times[0]:.1f} s", file=sys.stderr)
        report[name] = {side: _ratios(count, times) for side, times in measured.items()}
    return report


def _ratios(count: int, times: dict[int, list[tuple[float, float]]]) -> dict[str, Any]:
    one, two = (times[workers] for workers in WORKERS)
    return {
        "per_s": {
            str(workers): round(count / median(s for s, _ in times[workers]), 2) for workers in WORKERS
        },
        "of_linear": round(median(a / (2 * b) for (a, _), (b, _) in zip(one, two, strict=True)), 3),
        "cpu_ms_each": {
            str(workers): round(1000 * median(c for _, c in times[workers]) / count, 2) for workers in WORKERS
        },
        "cpu_of_one": round(median(a / b for (_, a), (_, b) in zip(one, two, strict=True)), 3),
    }


def _times(do: Do, positions: list[Position]) -> tuple[float, float]:
    """Seconds on the clock and of processor time, of this process and all below it."""
    started, cpu = time.perf_counter(), family_s()
    do(positions)
    return time.perf_counter() - started, family_s() - cpu


@contextmanager
def _cluster(nodes: int) -> Iterator[str]:
    """The address of a Ray cluster of nodes with one CPU each."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_raylet_start_wait_time_s": "200",
    }
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(**size)
        yield cluster.address
    finally:
        cluster.shutdown()


SIDES: dict[str, Callable[[int], AbstractContextManager[str | None]]] = {
    "local": lambda workers: nullcontext(None),
    "ray": _cluster,
}
"""By name: the address of the cluster where so many workers are to work, or None for this machine."""


@contextmanager
def _annotating(address: str | None, count: int, nodes: int) -> Iterator[Do]:
    recipe = AnnotationRecipe(effort=Effort.of(nodes, lines=3))
    work = partial(make_records, recipe.annotate, WorkerEngine(None))
    with Workers(count, ray=address) as workers:

        def do(positions: list[Position]) -> None:
            numbered = list(enumerate(positions))
            shards = [numbered[first : first + SHARD_SIZE] for first in range(0, len(numbered), SHARD_SIZE)]
            for _ in workers.map(work, shards):
                pass

        yield do


@contextmanager
def _scoring(address: str | None, count: int, nodes: int) -> Iterator[Do]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            scorer: GroupScorer
            if address is None:
                service = reward_client(None, nodes=nodes // 10, engines=count)
                scorer = runner.run(stack.enter_async_context(service))
            else:
                scorer = WorkerScorer(stack.enter_context(Workers(count, ray=address)), nodes // 10)
            yield lambda positions: runner.run(_score(scorer, positions))
        finally:
            runner.run(stack.aclose())


async def _score(scorer: GroupScorer, positions: list[Position]) -> None:
    groups = ((position.id, _answers(position)) for position in positions)
    async with aclosing(scorer.stream(groups, scheme="delta")) as scored:
        async for _ in scored:
            pass


def _answers(position: Position) -> list[ScoreItem]:
    """The first legal moves as answers."""
    moves = sorted(move.uci() for move in chess.Board(position.fen).legal_moves)[:ANSWERS]
    return [ScoreItem(position.fen, f"\\boxed{{{move}}}") for move in moves]
