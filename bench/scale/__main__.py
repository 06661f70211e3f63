"""`python -m bench.scale`: one worker and two, a pipeline that is up to date, and traces through one Redis.

Prints figures as JSON, and returns 1 if a target is missed. On a machine that has other work to do, only
ratios and processor time mean something.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import chess

from bench.scale import traces
from bench.usage import family_s
from rookery.clients import ScoreItem
from rookery.clients.score_stream import Scorer
from rookery.processes.workers import Workers
from rookery.trace import Position
from services.data.annotate import Effort
from services.data.annotate.annotating import AnnotationRecipe, annotate_shard
from services.data.commands.engines import WorkerScorer, reward_service
from services.data.jobs import WorkerEngine
from services.data.positions.generator import PositionGenerator
from services.data.positions.numbered import SHARD_SIZE

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


def _times(do: "Do", positions: list[Position]) -> tuple[float, float]:
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
def _annotating(address: str | None, count: int, nodes: int) -> Iterator["Do"]:
    recipe = AnnotationRecipe(effort=Effort.of(nodes, lines=3))
    work = partial(annotate_shard, recipe, WorkerEngine(None))
    with Workers(count, ray=address) as workers:

        def do(positions: list[Position]) -> None:
            numbered = list(enumerate(positions))
            shards = [numbered[first : first + SHARD_SIZE] for first in range(0, len(numbered), SHARD_SIZE)]
            for _ in workers.map(work, shards):
                pass

        yield do


@contextmanager
def _scoring(address: str | None, count: int, nodes: int) -> Iterator["Do"]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            scorer: Scorer
            if address is None:
                service = reward_service(None, nodes=nodes // 10, engines=count)
                scorer = runner.run(stack.enter_async_context(service))
            else:
                scorer = WorkerScorer(stack.enter_context(Workers(count, ray=address)), nodes // 10)
            yield lambda positions: runner.run(_score(scorer, positions))
        finally:
            runner.run(stack.aclose())


async def _score(scorer: Scorer, positions: list[Position]) -> None:
    groups = ((position.id, _answers(position)) for position in positions)
    async with aclosing(scorer.stream(groups, scheme="delta")) as scored:
        async for _ in scored:
            pass


def _answers(position: Position) -> list[ScoreItem]:
    """The first legal moves as answers."""
    moves = sorted(move.uci() for move in chess.Board(position.fen).legal_moves)[:ANSWERS]
    return [ScoreItem(position.fen, f"\\boxed{{{move}}}") for move in moves]


PARTS = ("workers", "pipeline", "traces")
UP_TO_DATE_S = 3.0
_STEPS, _MODEL_MB = 6, 350
"""As many steps as in pipelines/pychess.toml; one of them reads a model of the size of distilgpt2."""


def main() -> int:
    """Measures, prints, and returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--annotations", type=int, default=160)
    parser.add_argument("--groups", type=int, default=640, help="to score, of eight answers")
    parser.add_argument("--nodes", type=int, default=20_000, help="of annotations; scoring has a tenth")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--traces", type=int, default=5000, help="groups through Redis")
    options = parser.parse_args()
    report: dict[str, Any] = {"load_before": os.getloadavg(), "cores": os.cpu_count()}
    met: dict[str, bool] = {}
    if "workers" in options.parts:
        report["workers"] = spread = measure(
            annotations=options.annotations, groups=options.groups, nodes=options.nodes, rounds=options.rounds
        )
        for work, sides in spread.items():
            for side, found in sides.items():
                met[f"{work}, {side}: {TARGET} of linear"] = found["of_linear"] >= TARGET
    if "pipeline" in options.parts:
        report["pipeline_up_to_date_cpu_s"] = seconds = _up_to_date()
        met[f"pipeline: {UP_TO_DATE_S} s"] = seconds <= UP_TO_DATE_S
    if "traces" in options.parts:
        report["traces"] = sizes = traces.measure(options.traces)
        for size, found in sizes.items():
            met[f"traces of {size}: {traces.TARGET} a second"] = (
                found["groups_per_s_of_a_core"] >= traces.TARGET
            )
    print(json.dumps(report | {"targets_met": met}, indent=2))
    return 0 if all(met.values()) else 1


def _up_to_date() -> float:
    """Seconds of processor time of `rookery pipeline run` that finds nothing to do."""
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as folder:
        model, file = Path(folder) / "model.safetensors", Path(folder) / "pipeline.toml"
        with model.open("wb") as output:
            for _ in range(_MODEL_MB):
                output.write(os.urandom(1 << 20))
        file.write_text("".join(_step(number, model) for number in range(_STEPS)))
        argv = [sys.executable, "-m", "launcher", "pipeline", "run", str(file), "--out", f"{folder}/out"]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def _step(number: int, model: Path) -> str:
    run = f"data tasks legal-moves --count 5 --seed {number} --out {{step-{number}}}"
    reads = f'reads = ["{model}"]\n' if number == 0 else ""
    return f'[[steps]]\nname = "step-{number}"\nrun = "{run}"\n{reads}'


if __name__ == "__main__":
    sys.exit(main())
