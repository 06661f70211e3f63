"""Publishes a committed version: in the store if there is one, in the `policy` record, then on every server.

Training waits until the first server has loaded a version, and one second more for the others. The reload
of a slower server continues in the background; after it, the server gets the newest version. A server that
does not answer reads the record itself when it is back.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from rookery import replicas
from rookery.clients import InferenceClient
from rookery.config.trainer import TrainerSettings
from rookery.errors import PeerFault, RookeryError, SetupError
from rookery.failpoints import reach
from rookery.masking import mask_text
from rookery.metrics import RELOADS, SERVER_BEHIND
from rookery.remote import upload
from rookery.retries import PAUSES_S, retry
from rookery.streams import PolicyRecord
from rookery.trace import Adapter
from services.trainer.versions.commits import served_files

logger = logging.getLogger(__name__)

RELOAD_TIMEOUT_S = 120.0
FIRST_S = 15.0
"""How long training waits for any server to load a version."""
GRACE_S = 1.0
"""How long it waits for the others after that."""
SLEEP_PAUSES_S = (1.0, 5.0, 15.0, 30.0, 30.0)
"""Pauses between the calls of /sleep: a server that has crashed is back by then."""


class Publisher:
    """Publishes in order. All but `close` is called from the training thread."""

    def __init__(
        self, record: PolicyRecord, settings: TrainerSettings, *, epoch: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        """`loop` is another thread's. A server that joins gets the newest version at once."""
        self._record, self._settings, self._epoch, self._loop = record, settings, epoch, loop
        self._stored = -1
        self._newest: Adapter | None = None
        self._by_url: dict[str, _Server] = {}
        self._looked_up = threading.Event()
        self._follow_task = asyncio.run_coroutine_threadsafe(self._follow_servers(), loop)
        self._follow_task.add_done_callback(lambda _: self._looked_up.set())  # also after an error

    def publish(self, adapter: Adapter) -> None:
        """Publishes a version after its commit and acknowledgement. First waits for the previous version."""
        self.wait()
        self._copy_to_store(adapter)
        last = 0 < self._settings.max_steps <= adapter.version.number
        self._record.publish(adapter, epoch=self._epoch, last=last)
        reach("trainer.recorded")
        self._run(self._reload(adapter))
        reach("trainer.published")

    def republish(self, adapter: Adapter) -> None:
        """Restores the record if Redis lost it, and sends /reload again to servers that did not answer."""
        published = self._record.read()
        if published is None or published.version != adapter.version:
            logger.warning("the policy record says %s: publishing %s again", published, adapter.version.name)
            self.publish(adapter)
        else:
            self._copy_to_store(adapter)
            self._run(self._reload(adapter))

    def wait(self) -> None:
        """Waits until the servers have answered: `FIRST_S` at most, or `GRACE_S` after one has loaded it.
        Raises `SetupError` if a server demands another token."""
        self._run(self._wait_for_servers())

    def sleep(self) -> None:
        """Lets the servers free their GPUs, after the reloads under way, because a reload wakes a server.
        Raises `Conflict` if a server was started without --sleep; `PeerFault` if a server does not fall
        asleep."""
        self.wait()
        self._run(self._on_all_servers(_Server.sleep))

    def wake_up(self) -> None:
        """Wakes the servers. One that cannot take its memory back is woken by the next reload."""
        self._run(self._on_all_servers(_Server.wake_up))

    async def close(self) -> None:
        """Cancels the reloads under way and closes the clients."""
        self._follow_task.cancel()
        for server in self._servers:
            await server.close()

    @property
    def _servers(self) -> list["_Server"]:
        return list(self._by_url.values())

    def _copy_to_store(self, adapter: Adapter) -> None:
        """Copies a version to the store. If that fails, training goes on, and `republish` tries again."""
        store, folder = self._settings.adapter_store, Path(adapter.path)
        if not store or self._stored == adapter.version.number:
            return
        try:
            # `SHA256SUMS` comes last, so a server that finds it finds all files.
            names = [f"{folder.name}/{path.name}" for path in served_files(folder)]
            upload(folder.parent, names, store)
            self._stored = adapter.version.number
        except Exception as error:  # each store has its own
            logger.error(
                "%s is not in the store, and other machines cannot serve it: adapter_store=%s: %s %s",
                folder.name, store, type(error).__name__, error,
            )  # fmt: skip

    async def _follow_servers(self) -> None:
        async for current in replicas.follow(self._settings.inference_urls):
            removed = [self._by_url.pop(url) for url in self._by_url.keys() - current]
            for url in current:
                if url not in self._by_url:
                    self._by_url[url] = _Server(
                        InferenceClient(url, access=self._settings.access, timeout_s=RELOAD_TIMEOUT_S)
                    )
                    if self._newest:
                        self._by_url[url].reload(self._newest)
            self._looked_up.set()
            for server in removed:
                await server.leave()

    def _run(self, call: Coroutine[Any, Any, None]) -> None:
        self._looked_up.wait()  # for the first look-up
        if self._follow_task.done() and (error := self._follow_task.exception()):
            call.close()
            raise error  # one that `replicas` does not handle: a bug there
        asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def _on_all_servers(self, call: Callable[["_Server"], Awaitable[None]]) -> None:
        calls = (call(server) for server in self._servers)
        # Waits for all, so that no server is put to sleep after another has failed and all were woken.
        for error in await asyncio.gather(*calls, return_exceptions=True):
            if error:
                raise error

    async def _reload(self, adapter: Adapter) -> None:
        self._newest = adapter
        for server in self._servers:
            server.reload(adapter)

    async def _wait_for_servers(self) -> None:
        deadline = self._loop.time() + FIRST_S
        while waited_for := {s.task for s in self._servers if s.task and not s.task.done() and not s.late}:
            if any(server.up_to_date for server in self._servers):
                deadline = min(deadline, self._loop.time() + GRACE_S)
            ended, _ = await asyncio.wait(
                waited_for,
                timeout=max(0.0, deadline - self._loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not ended:
                for server in self._servers:
                    server.leave_behind()
        for server in self._servers:
            if server.task and server.task.done():
                server.task.result()  # raises a refused token, and what `_Server` does not handle: a bug here


class _Server:
    """One inference server. It has at most one reload under way; after that it gets the newest version."""

    def __init__(self, client: InferenceClient) -> None:
        self.task: asyncio.Task[None] | None = None
        self.late = False
        """Whether training does not wait for this server, until it has answered."""
        self._client = client
        self._newest: Adapter | None = None
        self._answered: Adapter | None = None
        self._loaded = -1
        self._behind = SERVER_BEHIND.labels(server=mask_text(client.url))

    @property
    def up_to_date(self) -> bool:
        """Whether it has loaded the newest version."""
        return self._newest is not None and self._loaded == self._newest.version.number

    def reload(self, adapter: Adapter) -> None:
        """Starts a reload of `adapter`, now or after the one under way, unless it was already answered."""
        self._newest = adapter
        self._export_lag()
        if self._answered != adapter and (self.task is None or self.task.done()):
            self.task = asyncio.create_task(self._catch_up())

    def leave_behind(self) -> None:
        """Stops waiting for a reload that is under way; it continues in the background."""
        if self.task and not self.task.done() and not self.late:
            self.late = True
            RELOADS.labels(result="late").inc()
            logger.warning(
                "training no longer waits for %s: its reload continues in the background", self._client.url
            )

    async def sleep(self) -> None:
        if self.task:
            await asyncio.wait({self.task})
        await retry(self._client.sleep, on=PeerFault, pauses_s=SLEEP_PAUSES_S)

    async def wake_up(self) -> None:
        try:
            await retry(self._client.wake_up, on=PeerFault, pauses_s=PAUSES_S)
        except PeerFault as error:
            logger.warning("%s does not wake up: %s", self._client.url, error)
            self._answered = None  # so that `republish` sends a reload

    async def leave(self) -> None:
        logger.info("%s is gone", self._client.url)
        SERVER_BEHIND.remove(mask_text(self._client.url))
        await self.close()

    async def close(self) -> None:
        if self.task:
            self.task.cancel()
            await asyncio.wait({self.task})
        await self._client.close()

    async def _catch_up(self) -> None:
        sent = None
        while self._newest is not None and self._newest != sent:
            sent = self._newest
            if await self._send_reload(sent):
                self._answered, self.late = sent, False

    async def _send_reload(self, adapter: Adapter) -> bool:
        """Sends one reload. Returns whether the server answered, by loading or refusing the version. Raises
        `SetupError` if the server demands another token."""
        name, url = adapter.version.name, self._client.url
        try:
            stages = await self._client.reload(adapter)
            RELOADS.labels(result="accepted").inc()
            logger.debug("%s serves %s: %s", url, name, stages)
            self._loaded = adapter.version.number
            self._export_lag()
        except PeerFault as error:
            RELOADS.labels(result="away").inc()
            logger.warning("%s did not answer the reload of %s: %s", url, name, error)
            return False
        except SetupError:
            raise
        except RookeryError as error:
            RELOADS.labels(result="refused").inc()
            logger.error("%s refused %s: %s", url, name, error)
        return True

    def _export_lag(self) -> None:
        if self._newest is not None:
            self._behind.set(self._newest.version.number - self._loaded)
