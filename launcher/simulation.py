"""A discrete-event simulation of rollouts workers that share one Redis, which serves one call at a time.

Each worker looks at the run's counts when a group is done, and at least every 0.2 s; it starts the groups for
which it has room, and publishes those that are done. The calls of feed, trainer and archive are part of a
group's cost. Generation never waits for the trainer, so this is the most that the workers can ask of Redis.
"""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

PAUSE_S = 0.2
"""Longest time between two looks of a worker: MAX_PAUSE_S of the rollouts' loop."""

_WARM_UP_S = 1.0

SATURATED = 0.9
"""Share of time in which Redis works, above which calls queue up."""


@dataclass(frozen=True, slots=True)
class RedisCosts:
    """Seconds of Redis' processor: for one look at the counts, and for all other calls for a group."""

    look_s: float
    group_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one Redis by `workers`. `busy` is a share of time, `wait_s` the mean wait of a call."""

    workers: int
    groups_per_s: float
    looks_per_s: float
    busy: float
    wait_s: float


def simulate(
    workers: int, *, in_flight: int, generation_s: float, costs: RedisCosts, seconds: float, seed: int = 0
) -> Load:
    """Simulates `seconds`, after one second. At the beginning, the workers have their groups half done.

    Each worker keeps `in_flight` groups in work. The time of a group is uniform between half and one and a
    half times `generation_s`.
    """
    world = _World(costs, random.Random(seed), begin=_WARM_UP_S, end=_WARM_UP_S + seconds)
    for _ in range(workers):
        worker = _Worker(world, generation_s)
        world.at(world.rng.uniform(0.0, PAUSE_S), worker.look)
        for _ in range(in_flight):
            world.at(world.rng.uniform(0.0, generation_s), worker.generated)
    world.run()
    seen = world.seen
    return Load(
        workers,
        seen["group"] / seconds,
        seen["look"] / seconds,
        seen["busy"] / seconds,
        seen["waited"] / max(1.0, seen["group"] + seen["look"]),
    )


class _World:
    """The events to come, and Redis, which serves calls in their order. Counts between `begin` and `end`."""

    def __init__(self, costs: RedisCosts, rng: random.Random, *, begin: float, end: float) -> None:
        self.rng, self.now, self.seen = rng, 0.0, defaultdict[str, float](float)
        self._costs = {"look": costs.look_s, "group": costs.group_s}
        self._begin, self._end, self._free_at = begin, end, 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._number += 1  # events of the same time happen in the order of their making
        heapq.heappush(self._events, (when, self._number, what))

    def call(self, kind: str, then: Callable[[], None]) -> None:
        start = max(self.now, self._free_at)
        self._free_at = start + self._costs[kind]
        self.seen["busy"] += max(0.0, min(self._free_at, self._end) - max(start, self._begin))
        if self._begin <= self._free_at < self._end:
            self.seen[kind] += 1
            self.seen["waited"] += start - self.now
        self.at(self._free_at, then)

    def run(self) -> None:
        while self._events and self._events[0][0] < self._end:
            self.now, _, what = heapq.heappop(self._events)
            what()


class _Worker:
    """The main loop of one worker, and its groups in work."""

    def __init__(self, world: _World, generation_s: float) -> None:
        self._world, self._room, self._generation_s = world, 0, generation_s
        self._looking, self._changed, self._looks = False, False, 0

    def look(self) -> None:
        if self._looking:
            self._changed = True
        else:
            self._looking, self._changed = True, False
            self._world.call("look", self._looked)

    def _looked(self) -> None:
        self._looking = False
        self._looks += 1
        for _ in range(self._room):
            taken_s = self._generation_s * self._world.rng.uniform(0.5, 1.5)
            self._world.at(self._world.now + taken_s, self.generated)
        self._room, looks = 0, self._looks
        if self._changed:
            self.look()
        else:
            self._world.at(self._world.now + PAUSE_S, lambda: self.look() if looks == self._looks else None)

    def generated(self) -> None:
        self._world.call("group", self._published)

    def _published(self) -> None:
        self._room += 1
        self.look()
