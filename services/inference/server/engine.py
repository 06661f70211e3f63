"""vLLM as the engine of `policies` and `full_weights_policies`: loads versions, answers the canary, warms up.

Runs inside vLLM's API server process and uses its objects: the engine client, and the table in which the
OpenAI routes look up adapter names. Written for vLLM 0.32 and 0.33.
"""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import torch
from vllm import SamplingParams
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.inputs import tokens_input
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.exceptions import EngineDeadError

from rookery.canary import CANARY_TEXT, RANKS, Canary, Rows
from rookery.errors import EngineFault, InvalidInput, Unavailable
from rookery.trace import Adapter, PolicyVersion

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from vllm.entrypoints.openai.models.serving import OpenAIServingModels
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

T = TypeVar("T")

LOAD_TIMEOUT_S = 120.0
WARM_UP_TIMEOUT_S = 600.0

_CANARY_TOKENS, _CANARY_RANKS = 4, 5
"""An almost certain token has log-probability 0 under any weights, so the less likely ones count too."""

_WARM_UP_PROMPTS, _WARM_UP_SAMPLES, _WARM_UP_TOKENS = 8, 8, 16


class VllmEngine:
    """The adapters of one vLLM engine. Routed names are keys of vLLM's own table. Methods raise `Unavailable`
    if the engine fails."""

    def __init__(self, client: "AsyncLLM", models: "OpenAIServingModels") -> None:
        self._client = client
        self._models = models
        self._loaded: dict[PolicyVersion, LoRARequest] = {}
        self._first: dict[str, str] = {}  # name -> sha256 of the first version with that name
        self._canary_ids = tuple(client.get_tokenizer().encode(CANARY_TEXT))
        self.precision = float(torch.finfo(client.model_config.dtype).eps)
        """Machine epsilon of the engine's data type: the distance from 1 to the next number."""

    async def load(self, adapter: Adapter) -> None:
        """Reads an adapter into memory. It has no name yet, so no request uses it. Raises `InvalidInput` if
        the engine cannot load it."""
        name, sha256 = adapter.version.name, adapter.version.sha256
        if self._first.setdefault(name, sha256) != sha256:
            # After a rollback a number has new bytes. It needs a new name, because vLLM keys its prefix
            # cache, and the adapters of a batch, by name.
            name = f"{name}-{sha256[:8]}"
        # A fresh id each time and never `load_inplace`: the flag would stick to the request, and vLLM
        # would read the file again on every step of every request that carries it.
        request = LoRARequest(name, self._models.lora_id_counter.inc(1), adapter.path)
        await self._ask(self._client.add_lora(request), f"vLLM cannot load {name} from {adapter.path}")
        self._loaded[adapter.version] = request

    async def canary(self, adapter: Adapter | None) -> tuple[float, ...]:
        """Log-probabilities of the 5 likeliest tokens at each of 4 greedy steps after a fixed text. They are
        those under a loaded adapter, or under the base model for None."""
        params = SamplingParams(
            temperature=0.0,
            max_tokens=_CANARY_TOKENS,
            ignore_eos=True,
            logprobs=_CANARY_RANKS,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        answer = self._generate(list(self._canary_ids), params, self._lora(adapter), priority=-1)
        output = await self._ask(answer, "the canary was not answered")
        ranked = (
            sorted((entry.logprob for entry in row.values()), reverse=True)
            for row in output.outputs[0].logprobs
        )
        return tuple(logprob for row in ranked for logprob in row[:_CANARY_RANKS])

    async def answers_to(self, canary: Canary, adapter: Adapter | None, *, together: bool = True) -> Rows:
        """The likeliest tokens after each beginning of the canary's text, under a loaded adapter, or the base
        model for None. All beginnings in one batch `together`, or one after the other."""
        params = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            logprobs=min(RANKS, self._client.model_config.get_vocab_size()),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        lora = self._lora(adapter)
        calls = (self._generate(ids, params, lora, priority=-1) for ids in canary.beginnings)
        complaint = "the canary was not answered"
        outputs: Sequence[RequestOutput]
        if together:
            outputs = await self._ask(asyncio.gather(*calls), complaint)
        else:
            outputs = [await self._ask(call, complaint) for call in calls]
        rows = (output.outputs[0].logprobs[0] for output in outputs)
        return [{token: entry.logprob for token, entry in row.items()} for row in rows]

    async def warm_up(self, adapter: Adapter) -> None:
        """Makes the first real requests as fast as later ones. Sends a burst of requests as rollouts do, then
        one with truncated sampling, as people do. Raises as `load` does."""
        lora = self._lora(adapter)
        burst = [
            self._generate([*self._canary_ids[i:], *self._canary_ids[:i]], _rollout_params(i), lora)
            for i in range(_WARM_UP_PROMPTS)
        ]
        truncated = SamplingParams(
            temperature=0.6,
            top_p=0.95,
            top_k=20,
            max_tokens=_WARM_UP_TOKENS,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        complaint = "the warm-up was not answered"
        await self._ask(asyncio.gather(*burst), complaint, timeout_s=WARM_UP_TIMEOUT_S)
        await self._ask(self._generate(list(self._canary_ids), truncated, lora), complaint)

    def route(self, model: str, adapter: Adapter) -> None:
        """Lets a loaded adapter answer new requests for `model`. vLLM resolves a request's model once, on
        arrival, so requests in flight keep theirs."""
        request = self._loaded[adapter.version]
        for name in (model, request.lora_name):  # `/v1/models` lists the latter
            self._models.lora_requests[name] = request

    def unroute(self, model: str) -> None:
        """Refuses new requests for `model`."""
        if request := self._models.lora_requests.pop(model, None):
            self._models.lora_requests.pop(request.lora_name, None)

    def in_use(self, adapter: Adapter) -> bool:
        """Whether a request in flight uses the adapter."""
        request = self._loaded[adapter.version]
        states = self._client.output_processor.request_states.values()
        return any(state.lora_request is request for state in states)

    async def unload(self, adapter: Adapter) -> None:
        """Frees the memory of an adapter, if it is loaded; its files stay."""
        request = self._loaded.get(adapter.version)
        if request is None:
            return
        await self._ask(
            self._client.remove_lora(request.lora_int_id), f"vLLM cannot unload {request.lora_name}"
        )
        del self._loaded[adapter.version]

    def _lora(self, adapter: Adapter | None) -> LoRARequest | None:
        """The LoRA request of a loaded adapter; None for the base model."""
        return self._loaded[adapter.version] if adapter else None

    async def _generate(
        self, token_ids: list[int], params: SamplingParams, lora: LoRARequest | None, *, priority: int = 0
    ) -> "RequestOutput":
        stream = self._client.generate(
            tokens_input(token_ids),
            params,
            f"rookery-{uuid.uuid4().hex}",
            lora_request=lora,
            priority=priority,
        )
        outputs = [output async for output in stream]
        return outputs[-1]

    async def _ask(self, answer: "Awaitable[T]", complaint: str, *, timeout_s: float = LOAD_TIMEOUT_S) -> T:
        """Waits for `answer`, and turns its errors into ours. Raises `EngineFault` if there is no answer in
        time, or the engine has died; `InvalidInput` if the engine is alive and refuses the request."""
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            raise EngineFault(f"{complaint}: no answer within {timeout_s:g} s") from error
        except EngineDeadError as error:
            raise EngineFault(f"{complaint}: {error}") from error
        except Exception as error:
            # vLLM carries the worker's exception across processes as text in a plain Exception.
            kind = EngineFault if self._client.errored else InvalidInput
            raise kind(f"{complaint}: {error}") from error


def _rollout_params(seed: int) -> SamplingParams:
    return SamplingParams(
        n=_WARM_UP_SAMPLES,
        seed=seed,
        temperature=1.0,
        logprobs=0,
        max_tokens=_WARM_UP_TOKENS,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


IDLE_TRIES, IDLE_PAUSE_S = 500, 0.02
"""How often vLLM is asked whether it is idle, and the pause in between."""


class FullWeightsVllmEngine(VllmEngine):
    """One set of weights, which may only be changed while nothing is generated."""

    def __init__(self, client: "AsyncLLM", models: "OpenAIServingModels", *, base: str) -> None:
        super().__init__(client, models)
        self._base = base

    async def load(self, adapter: Adapter) -> None:
        """Overwrites the weights and empties the prefix cache."""
        await self._overwrite(adapter.path)

    async def restore(self) -> None:
        """Loads the base model's weights again."""
        await self._overwrite(self._base)

    def route(self, model: str, adapter: Adapter) -> None:
        """Adds a name for the served version. Answers carry its first name, so route the alias last."""
        named_alike = [path for path in self._models.base_model_paths if path.model_path == adapter.path]
        # In place, because vLLM's registry holds the same list.
        self._models.base_model_paths[:] = [
            *(path for path in named_alike if path.name != model),
            BaseModelPath(name=model, model_path=adapter.path),
        ]

    def unroute(self, model: str) -> None:
        paths = self._models.base_model_paths
        paths[:] = [path for path in paths if path.name != model]

    def _lora(self, adapter: Adapter | None) -> LoRARequest | None:
        return None

    async def wait_until_idle(self) -> None:
        """Waits for cancelled requests, which stay in vLLM for a step or two. Raises `Unavailable` if
        something is still generated after some seconds."""
        for _ in range(IDLE_TRIES):
            if not self._client.output_processor.has_unfinished_requests():
                return
            await asyncio.sleep(IDLE_PAUSE_S)
        raise Unavailable(
            f"vLLM still generates after {IDLE_TRIES * IDLE_PAUSE_S:g} s, so its weights cannot change"
        )

    async def _overwrite(self, folder: str) -> None:
        # After a failed load, the canary may still run. Nobody waits for its answer.
        with suppress(Unavailable):
            await self.wait_until_idle()
        await self._ask(
            self._client.collective_rpc("load_full_weights", args=(folder,)), f"vLLM cannot load {folder}"
        )
        for _ in range(IDLE_TRIES):
            if await self._client.reset_prefix_cache():
                return
            await asyncio.sleep(IDLE_PAUSE_S)
        raise EngineFault("vLLM does not release the prefix cache of the old weights")
