"""Groups through one real Redis: all that happens to a group between the rollouts and its acknowledgement.

A position is fed and read, its group published; the trainer reads and settles it, and the archive reads and
acknowledges it. Redis has one core: a second divided by its processor time for a group is the most groups it
takes in a second. Clients can be many. Redis writes its append-only file, as it does in a run.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import redis

from chess_datasets.positions.generator import PositionGenerator
from launcher.redis_server import redis_argv
from rookery.codec import encode_group
from rookery.processes.ports import Ports
from rookery.prompt import render
from rookery.streams import RunStreams
from rookery.trace import (
    Completion,
    EngineStamp,
    Evaluation,
    Move,
    Outcome,
    PolicyVersion,
    Sampling,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)

TARGET = 2000.0
SIZES = {"rook-tiny": 16, "Qwen": 512}
"""Tokens of a completion."""
COMPLETIONS, BATCH = 8, 32


def measure(groups: int) -> dict[str, Any]:
    """Microseconds of Redis and of the clients for a group, by the size of its completions."""
    with redis_server() as url:
        return {name: _of_size(tokens, groups, url) for name, tokens in SIZES.items()}


def _of_size(tokens: int, count: int, url: str) -> dict[str, Any]:
    model = group_of(tokens)
    with closing(RunStreams(url, f"bench-{tokens}")) as streams, closing(redis.Redis.from_url(url)) as server:
        streams.archive.join(limit=1024)
        epoch = streams.take_over()
        for stream in (streams.positions, streams.groups, streams.archive):
            stream.read(consumer="c", count=1, block_s=0.01)
        stages: dict[str, float] = {}
        clients = time.process_time()

        @contextmanager
        def stage(name: str) -> Iterator[None]:
            before = cpu_s(server)
            yield
            stages[name] = round(1e6 * (cpu_s(server) - before) / count, 1)

        with stage("feed"):
            for first in range(0, count, BATCH):
                batch = [replace(model.position, id=str(n)) for n in range(first, min(count, first + BATCH))]
                streams.positions.add(batch, cursor=first)
        with stage("read position"):
            entries = [streams.positions.read(consumer="c", count=1, block_s=1)[0] for _ in range(count)]
        empty = int(server.info("memory")["used_memory"])
        with stage("publish group"):
            for number, entry in enumerate(entries):
                made = replace(model, id=str(number))
                streams.groups.publish(made, entry_id=entry.id)
        pending = int(server.info("memory")["used_memory"]) - empty
        with stage("trainer reads and acknowledges"):
            while held := streams.groups.read(consumer="c", count=BATCH, block_s=0.01):
                streams.groups.settle([entry.id for entry in held], result="trained", epoch=epoch)
        with stage("archive reads and acknowledges"):
            while held := streams.archive.read(consumer="c", count=BATCH, block_s=0.01):
                streams.archive.acknowledge([entry.id for entry in held])
        clients = time.process_time() - clients
        assert streams.groups.length() == 0  # noqa: S101
    redis_us = sum(stages.values())
    return {
        "tokens": tokens,
        "bytes_of_a_group": len(encode_group(model)),
        "redis_us": stages,
        "groups_per_s_of_a_core": round(1e6 / redis_us),
        "clients_us": round(1e6 * clients / count),
        "memory_of_a_pending_group": round(pending / count),
    }


def group_of(tokens: int) -> TraceGroup:
    """A group whose completions have `tokens` tokens of four characters each."""
    rng = Random(tokens)
    position = PositionGenerator(0).position(0)
    verdict = Verdict(
        -0.125,
        Outcome.LEGAL,
        "delta-1/parser-4/lichess-k0.00368208/nodes-1000/hash-1/stockfish-15.1",
        Move("e2e4", "e4"),
        Move("g1f3", "Nf3"),
        0.625,
        0.5,
        0.125,
        Evaluation(cp=139),
        Evaluation(cp=0),
        {"delta": -0.125},
        EngineStamp("Stockfish 15.1", 2001),
    )
    traces = []
    for number in range(COMPLETIONS):
        ids = tuple(rng.randrange(151_936) for _ in range(tokens))
        text = "".join(rng.choice("abcdefgh ") for _ in range(4 * tokens))
        logprobs = tuple(-rng.random() for _ in ids)
        completion = Completion(text, ids, logprobs, "stop", number)
        traces.append(Trace(f"g-{number}", (Turn(completion, replace(verdict, reward=-rng.random())),)))
    prompt = render(position, style="fen-legal-san")
    version = PolicyVersion(7, "0" * 64)
    prompt_ids = tuple(rng.randrange(151_936) for _ in range(200))
    return TraceGroup(
        "g",
        "bench",
        position,
        prompt,
        prompt_ids,
        version,
        "model@sha256:" + "0" * 64,
        Sampling(),
        tuple(traces),
        0.0,
    )


def cpu_s(server: redis.Redis) -> float:
    """Seconds of processor time that Redis has used."""
    used: Any = server.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


@contextmanager
def redis_server() -> Iterator[str]:
    """Starts a Redis with the settings of a run. Yields its URL."""
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder, Ports("127.0.0.1") as ports:
        port = ports.choose(0)
        command = [*redis_argv(Path(folder)), "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        url = f"redis://127.0.0.1:{port}/0"
        try:
            with closing(redis.Redis.from_url(url)) as client:
                for _ in range(500):
                    with suppress(redis.ConnectionError):
                        client.ping()
                        break
                    time.sleep(0.02)
            yield url
        finally:
            server.kill()
            server.wait()
