"""vLLM as the engine of `whole_policies`: overwrites vLLM's weights and renames its model.

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
"""Checks until vLLM is idle, and the pause between them: cancelled requests stay for a step or two."""


class WholeVllmEngine(VllmEngine):
    """One set of weights, which may only be changed while nothing is generated."""

    def __init__(self, client: "AsyncLLM", models: "OpenAIServingModels", *, base: str) -> None:
        super().__init__(client, models)
        self._base = base

    async def load(self, adapter: Adapter) -> None:
        """Overwrites the weights and empties the prefix cache."""
        await self._swap(adapter.path)

    async def restore(self) -> None:
        """Loads the base model's weights again."""
        await self._swap(self._base)

    def route(self, model: str, adapter: Adapter) -> None:
        """Adds a name for the served version. Answers carry its first name, so route the alias last."""
        known = [path for path in self._models.base_model_paths if path.model_path == adapter.path]
        # In place, because vLLM's registry holds the same list.
        self._models.base_model_paths[:] = [
            *(path for path in known if path.name != model),
            BaseModelPath(name=model, model_path=adapter.path),
        ]

    def unroute(self, model: str) -> None:
        paths = self._models.base_model_paths
        paths[:] = [path for path in paths if path.name != model]

    def busy(self, adapter: Adapter) -> bool:
        """Always True: the served version is the one in the engine."""
        return True

    async def unload(self, adapter: Adapter) -> None:
        """Does nothing: weights are overwritten, never unloaded."""

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
