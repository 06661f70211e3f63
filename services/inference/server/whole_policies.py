"""Versions that are whole models: one at a time, each overwriting the weights of the one before.

For models such as GPT-2, to which vLLM cannot add a LoRA adapter. A reload shuts the gate, waits until the
requests inside are answered, overwrites the weights, empties the prefix cache, checks the canary, moves the
names and opens the gate. So every answer comes from one version, the one it names.
"""

import asyncio
import logging
import time
from typing import Protocol

from rookery.errors import EngineFault, RookeryError
from rookery.metrics import RELOAD_SECONDS
from rookery.trace import Adapter
from services.inference.server.gate import Gate
from services.inference.server.policies import ALIAS, Engine, Policies, Reloaded, Rules, stage

logger = logging.getLogger(__name__)

DRAIN_S = 100.0
"""Time limit for the requests inside. It must be below the 120 s that the trainer waits for a reload."""


class WholeEngine(Engine, Protocol):
    """An engine whose `load` overwrites all weights. It never unloads anything."""

    async def restore(self) -> None:
        """Loads the base model's own weights again."""
        ...


class WholePolicies(Policies):
    """Serves the version in the engine, by its own name and the alias. All other names are unknown."""

    def __init__(self, engine: WholeEngine, rules: Rules, gate: Gate) -> None:
        super().__init__(engine, rules, keep=1)
        self._whole = engine
        self._gate = gate

    async def sweep(self) -> None:
        """Does nothing: the earlier version is overwritten, so there is nothing to unload."""

    async def _reload(self, adapter: Adapter) -> Reloaded:
        started, seconds = time.perf_counter(), dict[str, float]()
        with stage("verify", seconds):
            adapter = await asyncio.to_thread(self._rules.verify, adapter)
        base = await self._base()
        closing = time.perf_counter()
        async with self._gate.shut(within_s=DRAIN_S):
            seconds["drain"] = time.perf_counter() - closing
            RELOAD_SECONDS.labels("drain").observe(seconds["drain"])
            try:
                with stage("load", seconds):
                    await self._engine.load(adapter)
                with stage("canary", seconds):
                    difference = await self._check_canary(adapter, base)
                if not self._warm:
                    with stage("warm_up", seconds):
                        await self._engine.warm_up(adapter)
                    self._warm = True
            except BaseException as error:
                await self._go_back(error)
                raise
            with stage("flip", seconds):
                self._retired.clear()
                self._serve(adapter)
        seconds["total"] = time.perf_counter() - started
        logger.info("serving %s after %.3f s", adapter.version.name, seconds["total"], extra=seconds)
        return Reloaded(adapter, True, seconds, difference)

    async def _go_back(self, cause: BaseException) -> None:
        """Restores the weights of the version served before, or of the base model.

        Raises:
            EngineFault: that failed too. No version is served any more.
        """
        before = self.served
        try:
            await (self._engine.load(before) if before else self._whole.restore())
        except RookeryError as error:
            if before:
                for name in (before.version.name, ALIAS):
                    self._engine.unroute(name)
                self._named.clear()
            raise EngineFault(f"{cause}; and what was served before is lost: {error}") from error
