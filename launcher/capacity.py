"""`rookery plan`: estimates what a run would need and cost on other machines, from measured points."""

import logging
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from launcher.memory import HALF, memory_lines
from rookery.errors import SetupError
from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.remote import PathOrUrl, find_run
from rookery.settings import Settings, read_preset

logger = logging.getLogger(__name__)

WORKERS = (1, 10, 100, 300, 1000)
PAUSE_S = 0.2
"""Longest time between two looks of a worker: MAX_PAUSE_S of the rollouts' loop."""
SATURATED = 0.9
"""Share of time in which Redis works, above which calls queue up."""
_WARM_UP_STEPS = 5
_BYTES_OF_A_GROUP = 600
_BYTES_OF_A_TOKEN = 11
"""On the wire: three for its id, four for its log-probability, four of text."""

CPU_POINTS = {"generation_tokens_per_s": 3900.0, "training_tokens_per_s": 1420.0, "adapter_mb": 1.8}
"""rook-tiny on two CPU cores: vLLM's CPU build, one thread of which computes, with 64 requests for 8
completions, and 150 steps of `rookery demo --model models/rook-tiny`, whose trainer had one of the cores."""
GPU_POINTS = {"generation_tokens_per_s": 6300.0, "training_tokens_per_s": 6230.0, "adapter_mb": 132.0}
"""One H100, as others measured: generation with a model of 7B, in Hugging Face's survey of RL libraries; LoRA
of rank 16 on Qwen3-4B, in prime-rl's documentation. Such an adapter has 33 million numbers, of 4 bytes."""


class CapacitySettings(Settings, env_prefix="PLAN_"):
    """Predict samples a second, engine cores, stream depth, adapter bandwidth and cost of a run.

    The measured points have flags of their own; `--like` takes them from a run on machines of the same kind.
    """

    preset: str | None = None
    """Preset of a run, whose model, sizes and memory to compute."""
    model: PathOrUrl = ""
    """Model whose memory to compute: a directory or a Hugging Face id."""
    gpu_memory: tuple[PositiveFloat, ...] = (16, 24, 48, 80)
    """GiB of the GPUs of --model or --preset. Repeatable."""
    gpus: NonNegativeInt = 2
    """GPUs of the run. 1: it serves and trains in turns. 0: one machine without, whose cores all services
    share; points are for one core."""
    training_gpus: PositiveInt = 1
    """GPUs that train. Each other one serves."""
    tokens: PositiveFloat = 512
    """Tokens of a completion, on average."""
    prompt_tokens: NonNegativeFloat = 128
    """Tokens of a prompt."""
    nodes: PositiveInt = 1000
    """Stockfish nodes of a search."""
    cores: PositiveFloat = 2
    """CPU cores for Stockfish; with --gpus 0, for all services."""
    group_size: int = Field(default=8, ge=2)
    """Completions per position."""
    batch_groups: PositiveInt = 32
    """Positions per training step."""
    staleness: NonNegativeInt = 2
    """How many steps generation may run ahead of training."""
    max_inflight: PositiveInt = 64
    """Groups that a rollouts worker has in work. For Redis' load, each worker has a server of its own."""

    like: PathOrUrl | None = None
    """A run, by name or folder, whose metrics.jsonl gives the points of training."""
    generation_tokens_per_s: PositiveFloat | None = None
    """Tokens that a server generates in a second. Default: 6300 (an H100), or 3900 without."""
    iteration_ms: NonNegativeFloat = 0.0
    """Milliseconds of a server's iteration besides those of its tokens. An iteration gives each completion of
    a batch one token."""
    training_tokens_per_s: PositiveFloat | None = None
    """Tokens of prompts and completions that a GPU trains on in a second. Default: 6230, or 1420 without."""
    overhead_s: NonNegativeFloat | None = None
    """Seconds of a step besides training: commit, settle, publish. Default: 0.06, as rook-tiny has."""
    engine_nodes_per_s: PositiveFloat = 517_000
    """Nodes that a core searches in a second. Default: searches of 1,000 nodes with a cleared hash."""
    handling_ms: NonNegativeFloat = 1.0
    """With --gpus 0: milliseconds of a core for all else of a completion: rollouts, feed, archive, Redis."""
    adapter_mb: PositiveFloat | None = None
    """Size of an adapter. Default: 132, or 1.8."""
    redis_look_us: PositiveFloat = 32
    """Redis' time for a look at the counts. The three: `python -m bench.scale.redis_load`."""
    redis_group_us: PositiveFloat = 130
    """Redis' time for all else of a group, without what grows with its size."""
    redis_kib_us: NonNegativeFloat = 3.3
    """Redis' time for a KiB of a group."""
    gpu_hour: NonNegativeFloat = 2.5
    """Price of a GPU for an hour: an example, as is the next."""
    core_hour: NonNegativeFloat = 0.04
    """Price of a CPU core for an hour."""

    @classmethod
    def preset_values(cls, name: str) -> dict[str, Any]:
        """What `up` has of the same name."""
        up = read_preset(name)["up"]
        return {key: up[key] for key in ("model", "group_size", "batch_groups", "staleness") if key in up}

    def points(self) -> Mapping[str, float]:
        """The measured points: those given, those of the run `like`, else the defaults. Raises `SetupError`
        if the run has too few steps."""
        defaults = {"overhead_s": 0.06, **(GPU_POINTS if self.gpus else CPU_POINTS)}
        points = defaults | (_points_of(self.like) if self.like else {})
        flags = {name: value for name in points if (value := getattr(self, name)) is not None}
        return points | flags


def _points_of(run: str) -> dict[str, float]:
    path = find_run(run) / METRICS_FILE
    if not path.is_file():
        raise SetupError(f"--like {run!r}: there is no {path}")
    rows = read_metrics(path)[_WARM_UP_STEPS:]
    if not rows:
        raise SetupError(f"--like {run!r}: {METRICS_FILE} has no more than {_WARM_UP_STEPS} steps")

    def tokens(row: Mapping[str, Any]) -> float:
        completions = row["completions"] * row["completion_length"]
        return float(completions + row["groups"] * row.get("prompt_length", 0.0))

    if any("devices" not in row for row in rows):
        logger.warning(
            "--like %s: an older run, which does not say how many devices trained; 1 is assumed", run
        )
    return {
        "training_tokens_per_s": sum(map(tokens, rows))
        / sum(row["train_s"] * row.get("devices", 1) for row in rows),
        "overhead_s": fmean(row["commit_s"] + row["settle_s"] + row["publish_s"] for row in rows),
    }


def predict(settings: CapacitySettings) -> dict[str, float | str]:
    """Figures of the run by name, in the order in which they are printed.

    Generation, training and searches go on at the same time, and the slowest decides. One GPU generates and
    trains in turns. Without GPUs all share the cores, and the trainer has one of them at most. Raises
    `SetupError` if no GPU is left to serve.
    """
    points = settings.points()
    one_gpu = settings.gpus == settings.training_gpus == 1
    servers = 1 if one_gpu or not settings.gpus else settings.gpus - settings.training_gpus
    if servers < 1:
        raise SetupError(
            f"--gpus {settings.gpus} --training-gpus {settings.training_gpus}: no GPU is left to serve"
        )
    samples = settings.batch_groups * settings.group_size
    generation_s = samples * settings.tokens / (points["generation_tokens_per_s"] * servers)
    generation_s += settings.tokens * settings.iteration_ms / 1e3
    trainers = settings.training_gpus if settings.gpus else 1
    trained = settings.batch_groups * (settings.group_size * settings.tokens + settings.prompt_tokens)
    training_s = trained / (points["training_tokens_per_s"] * trainers) + points["overhead_s"]
    # The best move of each position, and the answered move of each completion.
    searched_s = (
        settings.batch_groups * (settings.group_size + 1) * settings.nodes / settings.engine_nodes_per_s
    )
    sides = {"generation": generation_s, "training": training_s, "Stockfish": searched_s / settings.cores}
    if one_gpu:
        sides["generation and training in turns"] = generation_s + training_s
    if not settings.gpus:
        used_s = generation_s + training_s + searched_s + samples * settings.handling_ms / 1e3
        sides = {"training": training_s, "the cores": used_s / settings.cores}
    slower = max(sides, key=lambda name: sides[name])
    step_s = sides[slower]
    ready = 0 if slower != "training" else min(1, settings.staleness)
    hour = settings.gpus * settings.gpu_hour + settings.cores * settings.core_hour
    return {
        "samples/s": samples / step_s,
        "seconds a step": step_s,
        "limited by": slower,
        "generation, seconds a batch": generation_s,
        "training, seconds a batch": training_s,
        "engine cores busy": searched_s / step_s,
        "groups in traces": settings.batch_groups * (1 + ready),
        "groups in traces, at most": settings.batch_groups * (1 + settings.staleness),
        "MB in traces, at most": settings.batch_groups
        * (1 + settings.staleness)
        * group_bytes(settings)
        / 1e6,
        "adapters, MB/s from the trainer": points["adapter_mb"] * servers / step_s,
        "cost an hour": hour,
        "cost of a million samples": hour / 3600 * step_s / samples * 1e6,
    }


def group_bytes(settings: CapacitySettings) -> float:
    """Bytes of a group on the wire."""
    tokens = settings.group_size * settings.tokens + settings.prompt_tokens
    return _BYTES_OF_A_GROUP + _BYTES_OF_A_TOKEN * tokens


@dataclass(frozen=True, slots=True)
class RedisCosts:
    """Seconds of Redis' processor: for one look at the counts, and for all other calls for a group."""

    look_s: float
    group_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one Redis by `workers`. `busy` is the share of time in which it works."""

    workers: int
    groups_per_s: float
    busy: float


def redis_load(workers: int, *, in_flight: int, generation_s: float, costs: RedisCosts) -> Load:
    """The load by workers that each keep `in_flight` groups in work, of `generation_s` each.

    So a worker publishes r = in_flight / generation_s groups a second, and each costs `group_s`. It looks at
    the counts whenever a group is done, and `PAUSE_S` after its last look. If groups are done independently
    of each other, the time between two looks is min(t, PAUSE_S) with an exponential t of mean 1 / r. Its
    mean is (1 - exp(-r * PAUSE_S)) / r, and each look costs `look_s`. Generation never waits for the trainer,
    so this is the most that workers can ask of Redis. If it has too little time, all get less.
    """
    rate = in_flight / generation_s
    looks = rate / -math.expm1(-rate * PAUSE_S)
    demand = workers * (rate * costs.group_s + looks * costs.look_s)
    return Load(workers, workers * rate / max(1.0, demand), min(1.0, demand))


def loads(settings: CapacitySettings) -> list[Load]:
    """What 1 to 1,000 workers, each with a server of its own, make of one Redis."""
    kib = group_bytes(settings) / 1024
    costs = RedisCosts(
        settings.redis_look_us / 1e6, (settings.redis_group_us + settings.redis_kib_us * kib) / 1e6
    )
    tokens = settings.max_inflight * settings.group_size * settings.tokens
    generation_s = tokens / settings.points()["generation_tokens_per_s"]
    return [
        redis_load(workers, in_flight=settings.max_inflight, generation_s=generation_s, costs=costs)
        for workers in WORKERS
    ]


def plan(settings: CapacitySettings) -> int:
    """Prints the points, the prediction and the load of Redis."""
    predicted = predict(settings)
    lines = [
        "measured points",
        *(f"  {name:<34}{value:>12,.2f}" for name, value in settings.points().items()),
    ]
    lines.append("predicted")
    lines += [
        f"  {name:<34}{value:>12}" if isinstance(value, str) else f"  {name:<34}{value:>12,.2f}"
        for name, value in predicted.items()
    ]
    lines.append("one Redis\n  workers   groups/s    busy")
    redis_loads = loads(settings)
    for load in redis_loads:
        lines.append(f"  {load.workers:>7}{load.groups_per_s:>11,.1f}{load.busy:>8.1%}")
    lines.append(f"  {saturation(redis_loads[0])}")
    if settings.model:
        served = read_preset(settings.preset).get("inference", {}) if settings.preset else {}
        lines.extend(
            memory_lines(
                settings.model,
                settings.gpu_memory,
                answer_tokens=served.get("max_model_len", 0),
                share=served.get("gpu_memory", HALF),
            )
        )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def saturation(load: Load) -> str:
    """With how many workers Redis saturates, in proportion to a load."""
    more = SATURATED / load.busy
    return (
        f"saturated ({SATURATED:.0%} busy) with {more * load.workers:,.0f} workers, "
        f"at {more * load.groups_per_s:,.0f} groups/s"
    )
