"""Tells the world about a committed version: the `policy` record first, then every server's /reload.

A server that is away is not waited for: it reads the record itself when it returns.
"""

import asyncio
import logging
from concurrent.futures import Future

from rookery.clients import InferenceClient
from rookery.errors import PeerFault, RookeryError
from rookery.metrics import RELOADS
from rookery.streams import RunStreams
from rookery.trace import Adapter

logger = logging.getLogger(__name__)

RELOAD_TIMEOUT_S = 120.0


class Publisher:
    """Publishes in order, at most one reload behind: the next version waits for the one before."""

    def __init__(
        self, streams: RunStreams, urls: list[str], *, epoch: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._streams = streams
        self._epoch = epoch
        self._loop = loop
        self._clients = [InferenceClient(url, timeout_s=RELOAD_TIMEOUT_S) for url in urls]
        self._last: Future[None] | None = None

    def publish(self, adapter: Adapter) -> None:
        """Called from the training thread, after the commit and its acknowledgement."""
        self.wait()
        self._streams.publish_policy(adapter, epoch=self._epoch)
        self._last = asyncio.run_coroutine_threadsafe(self._announce(adapter), self._loop)

    def republish(self, adapter: Adapter) -> None:
        """Mends a record that Redis has lost: without it, servers fall back to an older version."""
        published = self._streams.policy()
        if published is None or published.version != adapter.version:
            logger.warning("the policy record says %s: publishing %s again", published, adapter.version.name)
            self.publish(adapter)

    def wait(self) -> None:
        """Returns when every server has answered for the last version, well or ill."""
        if self._last is not None:
            self._last.result()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _announce(self, adapter: Adapter) -> None:
        await asyncio.gather(*(self._reload(client, adapter) for client in self._clients))

    async def _reload(self, client: InferenceClient, adapter: Adapter) -> None:
        try:
            stages = await client.reload(adapter)
            RELOADS.labels(result="accepted").inc()
            logger.debug("%s serves %s: %s", client.url, adapter.version.name, stages)
        except PeerFault as error:
            RELOADS.labels(result="away").inc()
            logger.warning("%s not told of %s: %s", client.url, adapter.version.name, error)
        except RookeryError as error:
            RELOADS.labels(result="refused").inc()
            logger.error("%s refuses %s: %s", client.url, adapter.version.name, error)
