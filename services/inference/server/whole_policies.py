"""Versions that are whole models: one at a time, its weights put over those of the one before.

For models to which vLLM cannot add a LoRA adapter, as GPT-2. The door is shut, requests inside are
answered to their end, weights are swapped, the prefix cache is emptied, the canary is asked, the names
move, the door opens. So an answer is of one version, the one it names.
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
"""The trainer waits for 120 s."""


class WholeEngine(Engine, Protocol):
    """`load` puts an adapter's weights over those that are there; nothing is ever unloaded."""

    async def restore(self) -> None:
        """Puts the base model's own weights back."""
        ...


class WholePolicies(Policies):
    """The version in the engine, under its own name and the alias; every other name is unknown."""

    def __init__(self, engine: WholeEngine, rules: Rules, gate: Gate) -> None:
        super().__init__(engine, rules, keep=1)
        self._whole = engine
        self._gate = gate

    async def sweep(self) -> None:
        """Nothing is retired: the version before is gone."""

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
        """The version served before, or the base; when even that fails, none is served any more."""
        before = self.served
        try:
            await (self._engine.load(before) if before else self._whole.restore())
        except RookeryError as error:
            if before:
                for name in (before.version.name, ALIAS):
                    self._engine.unroute(name)
                self._named.clear()
            raise EngineFault(f"{cause}; and what was served before is lost: {error}") from error
