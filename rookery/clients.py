"""Typed clients of the other services: reward over gRPC, inference over HTTP.

Every call has a timeout and a bounded number of tries. A peer's fault surfaces as `PeerFault`, a
refusal of our input as `InvalidInput`; nothing here turns either into a reward.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rookery.codec import verdict_from_proto
from rookery.errors import Conflict, InvalidInput, NotFound, PeerFault, RookeryError
from rookery.lanes import Lanes
from rookery.trace import Adapter, Completion, PolicyVersion, Prompt, Sampling, Verdict
from rookery.v1 import reward_pb2, reward_pb2_grpc

logger = logging.getLogger(__name__)

POLICY_TIMEOUT_S = 5.0
"""`GET /policy` is one dictionary look-up: a server slower than this is as good as away."""

TRIES = 4
_BACKOFF_S = (0.2, 0.5, 1.0)
_HEALTH_TIMEOUT_S = 2.0

_ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


@dataclass(frozen=True, slots=True)
class ScoreItem:
    """One answer to judge: `truncated` says that the server cut it at its token limit."""

    fen: str
    response: str
    truncated: bool = False


class RewardClient:
    """gRPC client that spreads calls over every address the target resolves to.

    Use `dns:///reward:50051` so that replicas share the load. With `wait_for_ready` a call outlives
    a service that restarts: it waits for a connection, within its timeout, instead of failing at once.
    """

    def __init__(self, target: str, *, timeout_s: float = 60.0, wait_for_ready: bool = False) -> None:
        self._timeout_s = timeout_s
        self._wait_for_ready = wait_for_ready
        self._channel = grpc.aio.insecure_channel(
            target,
            options=[
                ("grpc.service_config", _ROUND_ROBIN),
                ("grpc.max_receive_message_length", 64 << 20),
                ("grpc.max_send_message_length", 64 << 20),
            ],
        )
        self._stub = reward_pb2_grpc.RewardServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def score(self, items: Sequence[ScoreItem], *, scheme: str = "") -> list[Verdict]:
        """Verdicts in the order of `items`; all or nothing.

        Raises:
            InvalidInput: the service refuses an item, quoting it.
            PeerFault: it did not answer after several tries.
        """
        request = reward_pb2.ScoreBatchRequest(
            items=[
                reward_pb2.ScoreRequest(
                    fen=item.fen, response=item.response, truncated=item.truncated, scheme=scheme
                )
                for item in items
            ]
        )
        for attempt in range(TRIES):
            try:
                response = await self._stub.ScoreBatch(
                    request, timeout=self._timeout_s, wait_for_ready=self._wait_for_ready
                )
                return [_verdict(item) for item in response.items]
            except (grpc.aio.AioRpcError, PeerFault) as error:
                reason = _grpc_reason(error)
                if isinstance(error, grpc.aio.AioRpcError) and error.code() in _REFUSALS:
                    raise InvalidInput(reason) from error
            if attempt + 1 < TRIES:
                logger.warning("reward: %s; try %d of %d failed", reason, attempt + 1, TRIES)
                await asyncio.sleep(_BACKOFF_S[attempt])
        raise PeerFault(f"reward service: {reason} after {TRIES} tries")

    async def ready(self) -> bool:
        """Whether a replica says now that it is serving."""
        try:
            answer = await self._health.Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        await self._channel.close(grace=None)


_REFUSALS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}


def _verdict(item: reward_pb2.ScoreBatchItem) -> Verdict:
    if item.WhichOneof("result") == "verdict":
        return verdict_from_proto(item.verdict)
    problem = item.problem
    if problem.status < 500:
        raise InvalidInput(f"{problem.title}: {problem.detail}")
    raise PeerFault(f"{problem.title}: {problem.detail}")


def _grpc_reason(error: grpc.aio.AioRpcError | PeerFault) -> str:
    if isinstance(error, PeerFault):
        return str(error)
    return f"{error.code().name} {error.details()}"


@dataclass(frozen=True, slots=True)
class Generation:
    """The completions of one prompt, with the token ids the server made of it."""

    prompt_token_ids: tuple[int, ...]
    completions: tuple[Completion, ...]


class InferenceClient:
    """HTTP client of one inference server."""

    def __init__(self, url: str, *, timeout_s: float = 600.0) -> None:
        self.url = url.rstrip("/")
        self._http = Lanes(self.url, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def close(self) -> None:
        await self._http.aclose()

    async def adapter(self) -> Adapter | None:
        """The adapter served now, None while the server is not ready.

        Raises:
            PeerFault: it does not answer within `POLICY_TIMEOUT_S`.
        """
        response = await self._request("GET", "/policy", timeout_s=POLICY_TIMEOUT_S)
        if response.status_code == 503:
            return None
        with _understanding(response):
            body = _body(response)
            version = PolicyVersion(int(body["version"]), str(body["sha256"]))
            return Adapter(version, str(body["path"]), str(body["base_model"]))

    async def policy(self) -> PolicyVersion | None:
        """The version served now, None while the server is not ready.

        Raises:
            PeerFault: it does not answer within `POLICY_TIMEOUT_S`.
        """
        adapter = await self.adapter()
        return adapter.version if adapter else None

    async def served(self) -> dict[str, Path]:
        """Every model name the server answers to, and where it was loaded from.

        Raises:
            PeerFault: it does not answer.
        """
        body = _body(await self._request("GET", "/v1/models"))
        return {str(card["id"]): Path(card.get("root") or "") for card in body["data"]}

    async def complete(
        self, prompt: Prompt, *, model: str, count: int, sampling: Sampling, seed: int
    ) -> Generation:
        """`count` completions, number i drawn with seed `seed + i`, with token ids and logprobs.

        Raises:
            NotFound: the server no longer knows `model` (a retired version).
            InvalidInput: it refuses the request.
            PeerFault: it did not answer or lost the request.
        """
        request: dict[str, Any] = {
            "model": model,
            "messages": [{"role": m.role, "content": m.content} for m in prompt.messages],
            "n": count,
            "seed": seed,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k if sampling.top_k else -1,
            "min_p": 0.0,
            "max_tokens": sampling.max_tokens,
            "logprobs": True,
            "top_logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        response = await self._request("POST", "/v1/chat/completions", request)
        with _understanding(response):
            body = _body(response)
            choices = sorted(body["choices"], key=lambda choice: int(choice["index"]))
            return Generation(
                prompt_token_ids=tuple(body["prompt_token_ids"]),
                completions=tuple(_completion(c, seed=seed) for c in choices),
            )

    async def reload(self, adapter: Adapter, *, rollback: bool = False) -> dict[str, Any]:
        """Makes the server answer with `adapter`; its stage timings in seconds.

        Raises:
            InvalidInput: it refuses the adapter and keeps its policy.
            Conflict: it serves other bytes under this version, or a newer one.
            PeerFault: it does not answer.
        """
        request = {
            "version": adapter.version.number,
            "path": adapter.path,
            "sha256": adapter.version.sha256,
            "base_model": adapter.base_model,
            "rollback": rollback,
        }
        return _body(await self._request("POST", "/reload", request))

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> httpx.Response:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        try:
            return await self._http.request(method, path, json=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise PeerFault(f"{method} {self.url}{path}: {type(error).__name__} {error}") from error


_ERRORS: dict[int, type[RookeryError]] = {400: InvalidInput, 404: NotFound, 409: Conflict, 422: InvalidInput}


@contextmanager
def _understanding(response: httpx.Response) -> Iterator[None]:
    """An answer of another shape than agreed is the peer's fault."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        request = response.request
        raise PeerFault(f"{request.method} {request.url}: cannot read the answer: {error!r}") from error


def _body(response: httpx.Response) -> dict[str, Any]:
    if response.is_success:
        body: dict[str, Any] = response.json()
        return body
    kind = _ERRORS.get(response.status_code, PeerFault)
    request = response.request
    raise kind(f"{request.method} {request.url}: {response.status_code} {response.text[:500]}")


def _completion(choice: dict[str, Any], *, seed: int) -> Completion:
    return Completion(
        text=choice["message"]["content"] or "",
        token_ids=tuple(choice["token_ids"]),
        logprobs=tuple(float(token["logprob"]) for token in choice["logprobs"]["content"]),
        finish_reason=choice["finish_reason"],
        seed=seed + int(choice["index"]),
    )
