"""What a group and a look at the counts cost Redis, and whether `launcher.capacity` predicts its load.

Each worker is a thread that looks, reads, waits as long as a generation takes, and publishes. The processor
time is what Redis itself counts, so other work on the machine does not matter; the rate of groups is what the
workers managed. Prints JSON.
"""

import argparse
import heapq
import json
import os
import random
import threading
import time
from contextlib import closing
from dataclasses import asdict, replace

import chess
import redis

from bench.scale.traces import cpu_s, group_of, redis_server
from launcher.capacity import PAUSE_S, RedisCosts, redis_load
from rookery.codec import encode_group
from rookery.streams import RunStreams
from rookery.trace import Phase, Position

BATCH = 32


def position(number: int) -> Position:
    """A position that only its number tells from others."""
    return Position(f"x:0:{number}", chess.STARTING_FEN, 0, Phase.OPENING, f"game {number}", ())


def feed(streams: RunStreams, count: int) -> None:
    """Adds the next `count` positions to the run's stream."""
    cursor = streams.positions.cursor()
    streams.positions.add([position(cursor + i) for i in range(count)], cursor=cursor)


def join(streams: RunStreams) -> None:
    """Makes the consumer groups, which see what comes after them."""
    for stream in (streams.positions, streams.groups):
        stream.read(consumer="c", count=1, block_s=0.01)


def look(streams: RunStreams) -> None:
    """As the rollouts' loop does before it starts groups."""
    streams.positions.pending()
    streams.overview()


def calibrate(url: str, server: "redis.Redis", tokens: int, count: int) -> RedisCosts:
    """Measures the costs of a look, and of a group from the feed to its settlement, one after the other."""
    with closing(RunStreams(url, f"calibrate-{tokens}")) as streams:
        join(streams)
        epoch, made = streams.take_over(), group_of(tokens)
        started = cpu_s(server)
        for number in range(count):
            if number % BATCH == 0:
                feed(streams, BATCH)
            [entry] = streams.positions.read(consumer="c", count=1, block_s=1)
            one = replace(made, id=f"g{number}")
            assert streams.groups.publish(one, entry_id=entry.id)  # noqa: S101
            if number % BATCH == BATCH - 1:
                settle(streams, epoch)
        group_s = (cpu_s(server) - started) / count
        started = cpu_s(server)
        for _ in range(count):
            look(streams)
        return RedisCosts((cpu_s(server) - started) / count, group_s)


def settle(streams: RunStreams, epoch: int) -> None:
    """As the trainer does."""
    held = streams.groups.read(consumer="t", count=10 * BATCH, block_s=0.01)
    streams.groups.settle([entry.id for entry in held], result="trained", epoch=epoch)


def work(url: str, name: str, args: argparse.Namespace, until: float, done: list[float]) -> None:
    """One worker."""
    rng, made = random.Random(name), group_of(args.tokens)
    ready: list[tuple[float, str]] = []
    with closing(RunStreams(url, "load")) as streams:
        while time.monotonic() < until:
            look(streams)
            if room := args.in_flight - len(ready):
                entries = streams.positions.read(consumer=name, count=room, block_s=1)
                for entry in entries:
                    at = time.monotonic() + args.generation_s * rng.uniform(0.5, 1.5)
                    heapq.heappush(ready, (at, entry.id))
            pause = ready[0][0] - time.monotonic() if ready else PAUSE_S
            time.sleep(max(0.0, min(PAUSE_S, pause)))
            while ready and ready[0][0] <= time.monotonic():
                _, entry_id = heapq.heappop(ready)
                one = replace(made, id=f"{name}-{entry_id}")
                streams.groups.publish(one, entry_id=entry_id)
                done.append(time.monotonic())


def load(url: str, server: "redis.Redis", args: argparse.Namespace) -> dict[str, float]:
    """Runs all workers, the feed and the trainer, and counts after the first groups are made."""
    done: list[float] = []
    begin = time.monotonic() + 2 * args.generation_s + 1
    end = begin + args.seconds
    names = [f"w{number}" for number in range(args.workers)]
    with closing(RunStreams(url, "load")) as streams:
        join(streams)
        epoch = streams.take_over()
        feed(streams, 4 * args.workers * args.in_flight)
        threads = [threading.Thread(target=work, args=(url, name, args, end, done)) for name in names]
        for thread in threads:
            thread.start()
        used = None
        while (now := time.monotonic()) < end:
            if used is None and now >= begin:
                begin, used = now, cpu_s(server)
            if streams.positions.length() < 3 * args.workers * args.in_flight:
                feed(streams, BATCH)
            settle(streams, epoch)
            time.sleep(0.02)
        busy = (cpu_s(server) - (used or 0.0)) / (time.monotonic() - begin)
        for thread in threads:
            thread.join()
    groups = sum(begin <= at < end for at in done) / (end - begin)
    return {"groups_per_s": round(groups, 1), "busy": round(busy, 4)}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.redis_load", description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--generation-s", type=float, default=1.0)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--groups", type=int, default=2000, help="to measure the costs with")
    args = parser.parse_args()
    with redis_server() as url, closing(redis.Redis.from_url(url)) as server:
        costs = {str(tokens): calibrate(url, server, tokens, args.groups) for tokens in (args.tokens, 512)}
        measured = load(url, server, args)
    predicted = redis_load(
        args.workers, in_flight=args.in_flight, generation_s=args.generation_s, costs=costs[str(args.tokens)]
    )
    report = {
        "load_average": os.getloadavg(),
        "bytes": {str(tokens): len(encode_group(group_of(tokens))) for tokens in (args.tokens, 512)},
        "microseconds": {
            name: {"look": round(1e6 * cost.look_s, 1), "group": round(1e6 * cost.group_s, 1)}
            for name, cost in costs.items()
        },
        "measured": measured,
        "predicted": {key: round(value, 4) for key, value in asdict(predicted).items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
