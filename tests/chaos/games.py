"""Games that rollouts play with real engines, while both are killed, and replies get lost.

Only the model is a stand-in, whose moves follow from the seed. So the games that were disturbed must equal,
turn by turn, those that one process plays undisturbed under the same ids.
"""

import asyncio
import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil

from rookery import failpoints
from rookery.clients import RewardClient
from rookery.codec import decode_group, encode_position
from rookery.config.reward import RewardSettings
from rookery.config.rollouts import RolloutsSettings
from rookery.engines import find_engine
from rookery.streams import Entry, Positions
from rookery.trace import Trace, TraceGroup
from services.inference.rollouts.group_generator import GroupGenerator
from services.inference.rollouts.peers import Peers
from services.reward.scorer import Scorer
from services.reward.servicer import RewardServicer
from tests.builders import numbered_position
from tests.chaos.cluster import become
from tests.chaos.disturbed import Disturbed, NotRecoveredError
from tests.chaos.faults import Row, network, strike
from tests.integration.rollouts.standins import Inference, playing
from tests.servers import serve_http, serve_reward
from tests.waiting import eventually

T = TypeVar("T")

EPISODE = "game,opponent=stockfish,nodes=200,blunders=0.3,plies=12,colours=both"
GROUP_SIZE = 4
AT_ONCE = 3
"""Groups in work."""

_context = multiprocessing.get_context("forkserver")


class Games(Disturbed):
    """A run of games alone; a step is a group. Use it as a context manager."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        super().__init__(folder, "games", seed=seed)
        self.hits = folder / "hits"
        self._entries: dict[str, Entry] = {}
        self._worker: multiprocessing.process.BaseProcess | None = None
        self._loop = asyncio.new_event_loop()
        self._serving = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._exits = contextlib.AsyncExitStack()

    def __enter__(self) -> Self:
        self._serving.start()
        self._wait(self._serve())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop_worker()
        self._wait(self._exits.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._serving.join()
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self) -> None:
        engine = find_engine(None, setting="", engine="stockfish")
        scorer = await Scorer.start(RewardSettings(engine_path=engine, engines=1, nodes=100))
        await self._exits.enter_async_context(scorer)
        self._model = await self._exits.enter_async_context(serve_http(playing(Inference())))
        self._reward = await self._exits.enter_async_context(serve_reward(RewardServicer(scorer)))

    # processes

    def start_worker(self, failpoint: str = "") -> multiprocessing.process.BaseProcess:
        flags = ["--run", self.run, "--redis-url", self.proxy_url, "--port", "0", "--style", "game-uci"]
        flags += ["--inference-urls", self._model, "--reward-target", f"dns:///{self._reward}"]
        flags += ["--group-size", str(GROUP_SIZE), "--batch-groups", "100000"]
        flags += ["--max-inflight", str(AT_ONCE)]
        env = {"ROOKERY_FAILPOINTS": failpoint, "ROOKERY_FAILPOINT_HITS": str(self.hits)}
        log = self.logs / "rollouts.log"
        arguments = (
            "services.inference.rollouts.__main__",
            flags,
            env,
            log,
            self.folder / "history.jsonl",
            0,
        )
        self._worker = _context.Process(target=become, args=arguments, daemon=True)
        self._worker.start()
        return self._worker

    def stop_worker(self) -> None:
        if self._worker:
            self._worker.kill()
            self._worker.join()

    def ensure(self) -> None:
        if self._worker is None or self._worker.exitcode is not None:
            self.start_worker()

    def engines(self) -> list[psutil.Process]:
        """The opponents of the worker."""
        with contextlib.suppress(psutil.NoSuchProcess):
            assert self._worker
            return psutil.Process(self._worker.pid).children(recursive=True)
        return []

    # the run

    def allow(self, steps: int) -> None:
        """Feeds positions, so that there are `steps` in all."""
        began = len(self._entries)
        positions = [replace(numbered_position(n), episode=EPISODE) for n in range(began, steps)]
        if not positions:
            return
        self.streams.positions.add(positions, cursor=began)
        rows = self.streams.redis.call(
            lambda client: client.xrevrange(self.streams.redis.key("positions"), count=len(positions))
        )
        ids = {fields[b"id"].decode(): entry_id.decode() for entry_id, fields in rows}
        for position in positions:
            self._entries[position.id] = Entry(ids[position.id], encode_position(position))

    def settle(self, steps: int) -> None:
        """Waits for all that was fed."""
        every = len(self._entries)
        self.until(lambda: self.streams.overview().counts.generated >= every, f"group {every}")

    def groups(self) -> list[TraceGroup]:
        rows = self.streams.redis.call(lambda client: client.xrange(self.streams.redis.key("traces")))
        return [decode_group(fields[b"data"]) for _, fields in rows]

    def check(self, steps: int) -> tuple[int, int]:
        """Groups lost and doubled. Raises `NotRecoveredError` if an account does not hold, or something of
        episodes is left."""
        run, groups = self.streams.overview(), self.groups()
        if run.astray or run.counts.dead or run.positions:
            raise NotRecoveredError(f"the account does not hold: {run}")
        left = [
            key for key in self.streams.redis.call(lambda client: client.keys("*")) if b"positions:" in key
        ]
        if left:
            raise NotRecoveredError(f"left of episodes that are over: {left}")
        ids = {group.position.id for group in groups}
        return len(self._entries.keys() - ids), len(groups) - len(ids)

    def compare(self) -> int:
        """Plays all games again undisturbed, and returns how many turns they have. Raises `NotRecoveredError`
        if a turn differs."""
        groups = self.groups()
        again = self._wait(self._play(groups))
        for group, other in zip(groups, again, strict=True):
            if (group.id, _played(group.traces)) != (other.id, _played(other.traces)):
                raise NotRecoveredError(f"group {group.id} differs from an undisturbed one")
        return sum(len(group.turns) for group in groups)

    async def _play(self, groups: list[TraceGroup]) -> list[TraceGroup]:
        stopping = asyncio.Event()
        peers = Peers(self._model, RewardClient(self._reward), changed=asyncio.Event())
        watching = asyncio.create_task(peers.watch(stopping))
        await eventually(lambda: not peers.unavailable_reason())
        settings = RolloutsSettings(run=self.run, style="game-uci", group_size=GROUP_SIZE)
        generator = GroupGenerator(settings, peers)
        entries = [self._entries[group.position.id] for group in groups]
        again = [await generator.generate(entry, _Forgetful()) for entry in entries]
        stopping.set()
        await watching
        await generator.players.close()
        await peers.close()
        return again


class _Forgetful(Positions):
    """Stores nothing."""

    def __init__(self) -> None: ...

    def turns(self, entry_id: str) -> list[tuple[TraceGroup, str]]:
        return []

    def store_turns(
        self, entry_id: str, turns: TraceGroup, *, slot: int = 0, number: int = 0, after: str = ""
    ) -> str:
        return "stored"


def _played(traces: tuple[Trace, ...]) -> list[object]:
    return [
        (turn.completion.text, turn.completion.seed, turn.observation, turn.rewards, turn.role, turn.reward)
        for trace in traces
        for turn in trace.turns
    ]


OF_TURNS = ("rollouts.played", "rollouts.stored")


def kill_at(place: str, games: Games, lasts_s: float, *, injections: int) -> int:
    """The rollouts end at a failpoint, again and again, each time a little later."""
    for number in range(injections):
        games.stop_worker()
        games.allow(len(games._entries) + 2)
        doomed = games.start_worker(f"{place}=kill@{1 + number % (7 if place in OF_TURNS else 2)}")
        games.until(lambda d=doomed: d.exitcode is not None, f"{place} is reached", supervised=False)  # type: ignore[misc]
        if doomed.exitcode != -signal.SIGKILL:
            raise NotRecoveredError(f"{place}: the process ended by itself, with status {doomed.exitcode}")
    return injections


def kill_any_time(games: Games, lasts_s: float, *, injections: int) -> int:
    for _ in range(injections):
        games.allow(len(games._entries) + 1)
        games.ensure()
        games.until(games.engines, "an engine plays")
        time.sleep(games.random.random() * 0.5)
        games.stop_worker()
    return injections


def kill_engines(games: Games, lasts_s: float, *, injections: int) -> int:
    """The opponents die in mid-game, while the rollouts go on."""
    struck = 0
    while struck < injections:
        games.allow(games.streams.overview().counts.generated + AT_ONCE)
        games.ensure()
        for engine in games.engines():
            with contextlib.suppress(psutil.NoSuchProcess):
                engine.kill()
                struck += 1
        time.sleep(0.05 + games.random.random() * 0.2)
    return struck


def lose_replies(games: Games, lasts_s: float) -> int:
    """Also of the scripts that store turns."""
    games.allow(len(games._entries) + 40)
    return network("lose-reply", games, lasts_s)


def faults(injections: int) -> dict[str, Callable[[Games, float], int]]:
    """The faults of games by name."""
    places = [place for place in failpoints.PLACES if place.startswith("rollouts")]
    return {
        **{f"games: kill at {place}": partial(kill_at, place, injections=injections) for place in places},
        "games: kill at any time": partial(kill_any_time, injections=injections),
        "games: opponents killed": partial(kill_engines, injections=injections),
        "games: network: lose-reply": lose_replies,
    }


NAMES = tuple(faults(1))


def run(
    folder: Path, names: list[str], *, seed: int, injections: int = 20, lasts_s: float = 5.0
) -> Iterator[Row]:
    """Makes the faults, and yields a row for each. Raises `NotRecoveredError` as `Games` does."""
    with Games(folder, seed=seed) as games:
        for name in names:
            inject = faults(injections)[name]
            games.allow(len(games._entries) + 2)
            games.ensure()

            yield strike(games, name, inject, steps=len(games._entries), lasts_s=lasts_s)
        games.compare()
