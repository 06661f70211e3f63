"""Sleep mode: a server frees its GPU for a trainer on the same GPU, and wakes up with the weights it had.

Asleep, vLLM keeps its weights, and the adapters beside them, in the machine's memory (its sleep mode, level
1), and drops the key-value cache. Requests wait until it is awake. Versions are loaded through this module,
because a reload must find the engine awake.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from rookery.errors import Conflict, EngineFault, Unavailable
from rookery.trace import Adapter
from services.inference.server.drain import RequestDrainer
from services.inference.server.policies import Policies, ReloadResult

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


class Sleeper:
    """The policies of an engine that may sleep. Sleeping, waking and reloading exclude each other."""

    def __init__(
        self, policies: Policies, engine: "AsyncLLM", drainer: RequestDrainer, *, may_sleep: bool
    ) -> None:
        self._policies, self._engine, self._drainer = policies, engine, drainer
        self._may_sleep = may_sleep
        self._lock = asyncio.Lock()
        self._asleep: AsyncExitStack | None = None
        """Ends the wait of the requests."""

    @property
    def asleep(self) -> bool:
        """Whether it sleeps."""
        return self._asleep is not None

    async def sleep(self) -> None:
        """Falls asleep once the requests in flight are answered. Does nothing if it sleeps already. Raises
        `Conflict` if the server was started without --sleep; `Unavailable` if requests are still in flight
        after the drainer's limit, or vLLM failed."""
        if not self._may_sleep:
            raise Conflict("this server was started without sleep=true")
        async with self._lock, AsyncExitStack() as stack:
            if self._asleep:
                return
            await stack.enter_async_context(self._drainer.drained())
            try:
                await self._engine.sleep(1)
            except Exception as error:
                raise EngineFault(f"vLLM cannot sleep: {error}") from error
            self._asleep = stack.pop_all()

    async def wake_up(self) -> None:
        """Wakes up, and lets the requests go on. Does nothing if it is awake. Raises `Unavailable` if vLLM
        failed, for example because others have the GPU's memory; it then stays asleep."""
        async with self._lock:
            self._drainer.release()  # of a /sleep that failed
            await self._wake_up()

    async def reload(self, adapter: Adapter, *, rollback: bool = False, wake: bool = True) -> ReloadResult:
        """Wakes up, and serves a version. See `Policies.reload` for the other errors. Raises `Unavailable` if
        it sleeps, and must not `wake`."""
        async with self._lock:
            if self._asleep and not wake:
                raise Unavailable("asleep during the trainer's step")
            await self._wake_up()
            return await self._policies.reload(adapter, rollback=rollback)

    async def maintain(self) -> None:
        """Prepares the first reload and unloads retired versions, unless it sleeps."""
        async with self._lock:
            if not self._asleep:
                await self._policies.prepare()
                await self._policies.unload_retired()

    async def _wake_up(self) -> None:
        if not self._asleep:
            return
        try:
            await self._engine.wake_up()
        except Exception as error:
            raise EngineFault(f"vLLM cannot wake up: {error}") from error
        waiting, self._asleep = self._asleep, None
        await waiting.aclose()
