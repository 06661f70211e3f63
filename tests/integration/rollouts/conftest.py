import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from rookery.clients import RewardClient
from rookery.codec import decode_group
from rookery.config.rollouts import RolloutsSettings
from rookery.streams import RunStreams
from rookery.trace import TraceGroup
from services.inference.rollouts import admission
from services.inference.rollouts import loop as loop_module
from services.inference.rollouts.admission import Admission, Lead
from services.inference.rollouts.group_generator import GroupGenerator
from services.inference.rollouts.loop import Loop
from services.inference.rollouts.peers import Peers
from tests.integration.rollouts.standins import Inference, Reward
from tests.servers import serve_http, serve_reward
from tests.waiting import eventually

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
GROUP_SIZE = 2
BATCH_GROUPS = 4


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PAUSES_S", (0.05,))
    monkeypatch.setattr(loop_module, "BLOCK_S", 0.1)


@pytest.fixture
def streams(redis_url: str) -> Iterator[RunStreams]:
    stopping = threading.Event()
    yield RunStreams(redis_url, "test", stopping=stopping)
    stopping.set()


def groups(streams: RunStreams) -> list[TraceGroup]:
    """All groups not yet settled, through a trainer's eyes."""
    streams.groups.read(count=100, block_s=0.001, consumer="t")
    streams.groups.read(count=100, block_s=0.001, consumer="t")
    return [decode_group(entry.data) for entry in streams.groups.read_held(consumer="t")]


def settle(streams: RunStreams, count: int, *, result: str = "trained") -> None:
    groups(streams)
    entries = streams.groups.read_held(consumer="t")[:count]
    epoch = streams.take_over()
    assert streams.groups.settle([e.id for e in entries], result=result, epoch=epoch) == count


@dataclass
class House:
    """Stand-in peers and the means to run a real loop against them."""

    streams: RunStreams
    inference: list[Inference]
    urls: list[str]
    reward: Reward
    reward_target: str
    staleness: int = 0
    max_inflight: int = 8
    just_in_time: bool = False
    influence_share: float = 0.1
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.asynccontextmanager
    async def running(self, *, consumer: str = "r", accept: str = "") -> AsyncIterator[Loop]:
        """A loop at work; drained at the end, its failure raised."""
        stopping, changed = asyncio.Event(), asyncio.Event()
        reward = RewardClient(self.reward_target)
        peers = Peers(",".join(self.urls), reward, changed=changed)
        settings = RolloutsSettings(
            run="test", group_size=GROUP_SIZE, seed=7, influence_share=self.influence_share
        )
        generator = GroupGenerator(settings, peers)
        lead = Lead(BATCH_GROUPS, self.staleness, just_in_time=self.just_in_time)
        loop = Loop(
            self.streams,
            generator,
            Admission(lead, self.max_inflight),
            consumer=consumer,
            accept_reward_version=accept,
            changed=changed,
        )
        tasks = [asyncio.create_task(t(stopping)) for t in (peers.watch, loop.keep, loop.run)]
        try:
            yield loop
        finally:
            stopping.set()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await peers.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def generated(self, count: int) -> None:
        """Returns when the run has generated so many groups."""
        await eventually(lambda: self.streams.counts().generated == count)

    async def makes(self, count: int, **how: str) -> None:
        """Runs a loop until the run has generated so many groups."""
        async with self.running(**how):
            await self.generated(count)

    async def gives_up_one(self) -> None:
        """Runs a loop until one position of the run is a dead letter."""
        async with self.running():
            await eventually(lambda: self.streams.counts().dead == {"positions": 1})


@pytest.fixture
async def house(streams: RunStreams) -> AsyncIterator[House]:
    inference, reward = Inference(), Reward()
    async with serve_http(inference.app()) as url, serve_reward(reward) as target:
        yield House(streams, [inference], [url], reward, target)
