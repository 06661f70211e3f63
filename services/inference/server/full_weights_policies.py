"""Serves versions with full weights, one at a time: each overwrites the weights of the one before.

For models such as GPT-2, to which vLLM cannot add a LoRA adapter. A reload holds back new requests, waits
until those in flight are answered, overwrites the weights, empties the prefix cache, checks the canary, moves
the names and lets the waiting requests go on. So every answer comes from one version, the one it names.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from rookery.errors import Conflict, EngineFault, RookeryError
from rookery.trace import Adapter, PolicyVersion
from services.inference.server.drain import RequestDrainer
from services.inference.server.policies import ALIAS, Policies, VersionChecks, stage

if TYPE_CHECKING:
    from services.inference.server.engine import FullWeightsVllmEngine


class FullWeightsPolicies(Policies):
    """Serves the version in the engine, by its own name and the alias. All other names are unknown."""

    _engine: "FullWeightsVllmEngine"

    def __init__(
        self, engine: "FullWeightsVllmEngine", rules: VersionChecks, drainer: RequestDrainer
    ) -> None:
        super().__init__(engine, rules, keep=1)
        self._drainer = drainer

    def lease(self, number: int, *, seconds: float) -> Adapter:
        """Always raises `Conflict`."""
        raise Conflict(
            f"version {number} cannot be leased for {seconds:g} s: with full_weights, the next version "
            "overwrites its weights"
        )

    async def unload_retired(self) -> None:
        """Forgets earlier versions. They were overwritten, so there is nothing to unload."""
        self._retired.clear()

    @asynccontextmanager
    async def _exclusive(self, seconds: dict[str, float]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with stage("drain", seconds):
                await stack.enter_async_context(self._drainer.drained())
                await self._engine.wait_until_idle()
            yield

    @property
    def _has_base(self) -> bool:
        return self.served is None

    def _loaded(self, version: PolicyVersion) -> Adapter | None:
        return None  # the engine has only the served version, for which there is no reload

    async def _undo_load(self, adapter: Adapter, cause: BaseException) -> None:
        """Restores the weights of the version served before, or of the base model. Raises `EngineFault` if
        that failed too; then no version is served any more."""
        before = self.served
        try:
            await (self._engine.load(before) if before else self._engine.restore())
        except RookeryError as error:
            if before:
                for name in (before.version.name, ALIAS):
                    self._engine.unroute(name)
                self._named.clear()
            raise EngineFault(
                f"{cause}; and the version served before could not be restored: {error}"
            ) from error
