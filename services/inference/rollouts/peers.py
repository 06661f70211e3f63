"""Which peers are ready: the inference servers, with the version each serves, and the reward service.

Looks up which inference servers there are, polls them, keeps the last answers, picks a server for each
request, and asks again what was asked of a version that is gone.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rookery import replicas
from rookery.access import OPEN, Access
from rookery.clients import Generation, InferenceClient, RewardClient, ScoreItem
from rookery.errors import NotFound, PeerFault, RookeryError, Unavailable
from rookery.retries import pause
from rookery.trace import Adapter, Prompt, Sampling, Verdict
from rookery.waits import waiting

logger = logging.getLogger(__name__)

POLICY_POLL_S = 0.1
REWARD_POLL_S = 1.0
MAX_RETIRED_TRIES = 3
"""A version can be retired between its choice and the request, but hardly this often in a row."""
EXPECTED_S = 120.0
"""A group whose verdicts take longer is reported (see `rookery.waits`)."""


@dataclass
class InferenceServer:
    """One inference server: the version it serves, or None and the reason, and our groups in flight."""

    client: InferenceClient
    adapter: Adapter | None = None
    inflight: int = 0
    reason: str = "not asked yet"
    watcher: "asyncio.Task[None] | None" = None

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

    @asynccontextmanager
    async def asking(self, server: InferenceServer) -> AsyncIterator[None]:
        """Counts one more group of `server` as in flight during the block. If the block raises `PeerFault`,
        polls the server, and raises `Unavailable` instead if it is no longer ready."""
        server.inflight += 1
        try:
            yield
        except PeerFault as error:
            await self.refresh(server)
            if server.adapter is None:
                raise Unavailable(f"{error}, and is unavailable now: {server.reason}") from error
            raise
        finally:
            server.inflight -= 1

    async def complete(
        self, prompt: Prompt, sampling: Sampling, *, seed: int, count: int
    ) -> tuple[InferenceServer, Adapter, Generation]:
        """Completions of the newest version, by the least busy server, and this server. Raises as
        `InferenceClient.complete` does, but for `NotFound`; `Unavailable` if no server is ready."""
        for _ in range(MAX_RETIRED_TRIES):
            server, adapter = self.pick()
            name = adapter.version.name
            try:
                async with self.asking(server):
                    generation = await server.client.complete(
                        prompt, model=name, count=count, sampling=sampling, seed=seed
                    )
            except NotFound:
                logger.info("%s has retired %s: trying again", server.client.url, name)
                await self.refresh(server)
                continue
            return server, adapter, generation
        raise PeerFault(
            f"{server.client.url} reports {name} but does not serve it, {MAX_RETIRED_TRIES} times"
        )

    async def verdicts(self, items: Sequence[ScoreItem]) -> list[Verdict]:
        """The verdicts on answers. Raises as `RewardClient.score` does; `PeerFault` if one is missing or not
        finite, and `Unavailable` if the reward service is not ready."""
        try:
            with waiting("verdicts", "reward", expected_s=EXPECTED_S):
                verdicts = await self.reward.score(items)
        except PeerFault as error:
            if not await self.reward.ready():
                raise Unavailable(f"{error}, and is unavailable now") from error
            raise
        if len(verdicts) != len(items):
            raise PeerFault(f"reward: {len(verdicts)} verdicts for {len(items)} answers")
        for item, verdict in zip(items, verdicts, strict=True):
            if not math.isfinite(verdict.reward):
                raise PeerFault(f"reward {verdict.reward!r} of {item.response!r} in {item.fen!r}")
        return verdicts

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
