"""vLLM as the engine of `whole_policies`: its own weights overwritten, its own model renamed.

Written for vLLM 0.32.
"""

import asyncio
from typing import TYPE_CHECKING

from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.lora.request import LoRARequest

from rookery.errors import EngineFault
from rookery.trace import Adapter
from services.inference.server.engine import VllmEngine

if TYPE_CHECKING:
    from vllm.entrypoints.openai.models.serving import OpenAIServingModels
    from vllm.v1.engine.async_llm import AsyncLLM

IDLE_TRIES, IDLE_PAUSE_S = 500, 0.02
"""Requests that their callers gave up leave the engine within a step or two of it."""


class WholeVllmEngine(VllmEngine):
    """One set of weights. Only while nothing is generated may they be changed."""

    def __init__(self, client: "AsyncLLM", models: "OpenAIServingModels", *, base: str) -> None:
        super().__init__(client, models)
        self._base = base

    async def load(self, adapter: Adapter) -> None:
        """Overwrites the weights, and forgets what was computed with the old ones."""
        await self._swap(adapter.path)

    async def restore(self) -> None:
        """Puts the base model's weights back."""
        await self._swap(self._base)

    def route(self, model: str, adapter: Adapter) -> None:
        """The first name is the one that answers bear: a version's own, never the alias."""
        known = [path for path in self._models.base_model_paths if path.model_path == adapter.path]
        # In place: vLLM's registry holds the same list.
        self._models.base_model_paths[:] = [
            *(path for path in known if path.name != model),
            BaseModelPath(name=model, model_path=adapter.path),
        ]

    def unroute(self, model: str) -> None:
        paths = self._models.base_model_paths
        paths[:] = [path for path in paths if path.name != model]

    def busy(self, adapter: Adapter) -> bool:
        """The version served is always the one in the engine."""
        return True

    async def unload(self, adapter: Adapter) -> None:
        """Weights are overwritten, never unloaded."""

    def _lora(self, adapter: Adapter | None) -> LoRARequest | None:
        return None

    async def _swap(self, folder: str) -> None:
        for _ in range(IDLE_TRIES):
            if not self._client.output_processor.has_unfinished_requests():
                break
            await asyncio.sleep(IDLE_PAUSE_S)
        await self._ask(
            self._client.collective_rpc("swap_weights", args=(folder,)), f"vLLM cannot load {folder}"
        )
        for _ in range(IDLE_TRIES):
            if await self._client.reset_prefix_cache():
                return
            await asyncio.sleep(IDLE_PAUSE_S)
        raise EngineFault("vLLM does not let go of the old weights' prefix cache")
