"""Which peers are ready: the inference servers, with the version each serves, and the reward service.

Looks up which inference servers there are, polls them, keeps the last answers, and picks a server for each
group.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from rookery import replicas
from rookery.access import OPEN, Access
from rookery.clients import InferenceClient, RewardClient
from rookery.errors import RookeryError, Unavailable
from rookery.trace import Adapter

logger = logging.getLogger(__name__)

POLICY_POLL_S = 0.1
REWARD_POLL_S = 1.0


@dataclass
class InferenceServer:
    """One inference server: the version it serves, or None and the reason, and our groups in flight."""

    client: InferenceClient
    adapter: Adapter | None = None
    inflight: int = 0
    reason: str = "not asked yet"
    watcher: "asyncio.Task[None] | None" = None

    @asynccontextmanager
    async def one_more_in_flight(self) -> AsyncIterator[None]:
        """Counts one group as in flight during the block."""
        self.inflight += 1
        try:
            yield
        finally:
            self.inflight -= 1

    async def poll(self) -> bool:
        """Asks which version is served. Returns whether it changed."""
        before = self.adapter
        try:
            self.adapter = await self.client.adapter()
            self.reason = "" if self.adapter else "not ready"
        except RookeryError as error:
            self.adapter, self.reason = None, str(error)
        return self.adapter != before


class Peers:
    """The inference servers and the reward service of a run. Sets `changed` when what they serve changes."""

    def __init__(
        self, inference_urls: str, reward: RewardClient, *, access: Access = OPEN, changed: asyncio.Event
    ) -> None:
        """`inference_urls` are as in `rookery.replicas`, `access` is for them."""
        self.servers: list[InferenceServer] = []
        self.reward = reward
        self._urls, self._access = inference_urls, access
        self._gone: list[InferenceServer] = []
        self._changed = changed
        self._reward_ready = False

    def unavailable_reason(self) -> str | None:
        """Why no group can be made now, or None if one can."""
        if self.version is None:
            reasons = "; ".join(f"{server.client.url}: {server.reason}" for server in self.servers)
            return f"no inference server is ready ({reasons or f'none at {self._urls}'})"
        return None if self._reward_ready else "the reward service is not ready"

    @property
    def version(self) -> int | None:
        """The newest version that any server serves, or None if none is ready."""
        return max((s.adapter.version.number for s in self.servers if s.adapter), default=None)

    def pick(self) -> tuple[InferenceServer, Adapter]:
        """The least busy of the servers with the newest version, and that version. Raises `Unavailable` if
        none is ready."""
        newest = self.version
        candidates = [
            (server, server.adapter)
            for server in self.servers
            if server.adapter and server.adapter.version.number == newest
        ]
        if not candidates:
            raise Unavailable(self.unavailable_reason())
        return min(candidates, key=lambda candidate: candidate[0].inflight)

    async def watch(self, stopping: asyncio.Event) -> None:
        """Polls all peers until `stopping` is set. A new version is known after about `POLICY_POLL_S`."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow_servers(tasks, stopping))
            await self._watch_reward(stopping)
            following.cancel()

    async def refresh(self, server: InferenceServer) -> None:
        """Polls one server now."""
        if await server.poll():
            served = server.adapter.version.name if server.adapter else f"nothing: {server.reason}"
            logger.info("%s serves %s", server.client.url, served)
            self._changed.set()

    async def _follow_servers(self, tasks: asyncio.TaskGroup, stopping: asyncio.Event) -> None:
        """Polls every server that there is. One that is gone gets no more groups, but may finish its own."""
        async for urls in replicas.follow(self._urls):
            gone = [server for server in self.servers if server.client.url not in urls]
            here = {server.client.url: server for server in self.servers if server not in gone}
            self.servers = [
                here.get(url) or InferenceServer(InferenceClient(url, access=self._access)) for url in urls
            ]
            for server in self.servers:
                if server.watcher is None:
                    server.watcher = tasks.create_task(self._watch_server(server, stopping))
            for server in gone:
                logger.info("%s is gone", server.client.url)
                server.adapter, server.reason = None, "gone"
                if server.watcher:
                    server.watcher.cancel()
            leaving = [*self._gone, *gone]
            self._gone = [server for server in leaving if server.inflight]
            await asyncio.gather(*(server.client.close() for server in leaving if not server.inflight))
            self._changed.set()

    async def _watch_server(self, server: InferenceServer, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await self.refresh(server)
            await pause(stopping, POLICY_POLL_S)

    async def _watch_reward(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            ready = await self.reward.ready()
            if ready != self._reward_ready:
                logger.info("the reward service is %s", "ready" if ready else "away")
                self._reward_ready = ready
                self._changed.set()
            await pause(stopping, REWARD_POLL_S)

    async def close(self) -> None:
        servers = (*self.servers, *self._gone)
        await asyncio.gather(*(server.client.close() for server in servers), self.reward.close())


async def pause(stopping: asyncio.Event, seconds: float) -> bool:
    """Waits for `stopping`, at most `seconds`. Returns whether it is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
    return stopping.is_set()
