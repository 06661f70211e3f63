"""HTTP client of one inference server: completions, the served policy, reloads."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from os.path import commonprefix
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import httpx

from rookery.access import OPEN, REMEDY, Access
from rookery.answers import opening_of
from rookery.clients.completions import CHAT, LINE, Api, read_completion, request_of
from rookery.errors import (
    Conflict,
    ContextExceeded,
    InvalidInput,
    NotFound,
    PeerFault,
    RookeryError,
    SetupError,
    cause_message,
)
from rookery.http_pool import HttpPool
from rookery.masking import MASK
from rookery.prompt import LINES
from rookery.trace import Adapter, Completion, PolicyVersion, Prompt, Sampling

logger = logging.getLogger(__name__)

_Tokens = tuple[int, ...]

_PREFIXES, _NEXT_TOKENS = 512, 128
"""Most prompts of a request for log-probabilities, and most tokens that it asks about: vLLM's own limit."""

_TAIL_TOKENS = 8
"""More tokens than a mark of reasoning has, with the white space behind it."""

_MISSING_AT_ONCE = 8
"""Most requests at a time for the completions that a server which ignores `n` has left out."""

POLICY_TIMEOUT_S = 5.0
"""`GET /policy` is one dictionary look-up: a server that is slower than this counts as down."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The completions of one prompt, with the prompt's token ids as the server tokenised it."""

    prompt_token_ids: tuple[int, ...]
    completions: tuple[Completion, ...]


class InferenceClient:
    """HTTP client of one inference server. `complete(..., tokens=False)` asks any OpenAI-compatible server.
    The token of `access` is masked in errors."""

    def __init__(
        self,
        url: str,
        *,
        access: Access = OPEN,
        timeout_s: float = 600.0,
        fields: Mapping[str, str] = MappingProxyType({}),
        opening: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """
        Args:
            fields: this server's names for fields of a request, such as max_tokens. A field with an empty
                name is left out.
            opening: the mark of reasoning, such as `<think>`, at the end of this server's prompts, which is
                put before each answer. None: no mark or, for vLLM, the one that the server reports.
            transport: instead of the network, such as `httpx.ASGITransport` of an application.
        """
        self.url = url.rstrip("/")
        self.fields, self.opening = fields, opening
        self._openings: dict[bool | None, str] = {}  # by `thinking`
        self._http = HttpPool(self.url, timeout_s=timeout_s, access=access, transport=transport)
        self._is_vllm: bool | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def close(self) -> None:
        await self._http.aclose()

    async def adapter(self) -> Adapter | None:
        """The served adapter, or None while the server is not ready. Raises `PeerFault` if it does not answer
        within `POLICY_TIMEOUT_S`."""
        response = await self._request("GET", "/policy", timeout_s=POLICY_TIMEOUT_S)
        if response.status_code == 503:
            return None
        with _parsing(response):
            body = _body(response)
            version = PolicyVersion(int(body["version"]), str(body["sha256"]))
            return Adapter(version, str(body["path"]), str(body["base_model"]))

    async def served(self) -> dict[str, Path]:
        """The model names that the server knows, with the directory of each. Raises `PeerFault`
        if it does not answer."""
        response = await self._request("GET", "/v1/models")
        with _parsing(response):
            return {str(card["id"]): Path(card.get("root") or "") for card in _body(response)["data"]}

    async def tells_tokens(self) -> bool:
        """Whether the server is vLLM, which returns token ids and takes all sampling parameters. Asked once.
        Raises `PeerFault` if it does not answer."""
        if self._is_vllm is None:
            response = await self._request("GET", "/v1/models")
            if response.status_code == 404:  # not every API lists its models
                self._is_vllm = False
                return False
            with _parsing(response):
                self._is_vllm = any(card.get("owned_by") == "vllm" for card in _body(response)["data"])
        return self._is_vllm

    async def complete(
        self,
        prompt: Prompt,
        *,
        model: str,
        count: int,
        sampling: Sampling,
        seed: int,
        tokens: bool = True,
        thinking: bool | None = None,
    ) -> Generation:
        """Samples `count` completions with token ids and log-probabilities; number i has seed `seed + i`.

        Without `tokens`, only what every OpenAI-compatible server knows is sent (so no `top_k`), and the
        completions have neither token ids nor log-probabilities. Many such servers ignore `n`: they are asked
        for the completions that are missing one by one, several at once. `thinking` switches the thinking of
        a chat template that can; None leaves it to the server.

        Raises:
            NotFound: the server no longer knows `model` (a retired version).
            ContextExceeded: the prompt leaves no room for so many tokens.
            InvalidInput: it refuses the request.
            PeerFault: it did not answer, lost the request, or answered with anything but `count` whole
                completions: fewer choices, a finish reason other than `stop` and `length`, log-probabilities
                that are missing or not finite.
        """
        api = LINE if prompt.style in LINES else CHAT
        request = request_of(api, prompt, model=model, sampling=sampling, tokens=tokens, thinking=thinking)
        ask = partial(self._generate, api, request, tokens=tokens, thinking=thinking)
        first = await ask(count=count, seed=seed)
        if len(first.completions) == count:
            return first
        slots = asyncio.Semaphore(_MISSING_AT_ONCE)

        async def ask_one(seed: int) -> Generation:
            async with slots:
                return await ask(count=1, seed=seed)

        try:
            async with asyncio.TaskGroup() as group:
                seeds = range(seed + len(first.completions), seed + count)
                tasks = [group.create_task(ask_one(seed)) for seed in seeds]
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from faults
        completions = chain(first.completions, *(task.result().completions for task in tasks))
        return replace(first, completions=tuple(completions))

    async def _generate(
        self, api: Api, request: dict[str, Any], *, count: int, seed: int, tokens: bool, thinking: bool | None
    ) -> Generation:
        """`count` completions; without `tokens` at least one of them. Raises as `complete` does."""
        request = request | {"n": count, "seed": seed}
        request = {self.fields.get(name, name): value for name, value in request.items()}
        request.pop("", None)
        response = await self._request("POST", api.path, request)
        with _parsing(response):
            body = _body(response)
            opening = ""
            if "messages" in request and "continue_final_message" not in request:
                opening = self.opening or ""
                if tokens and self.opening is None:
                    opening = await self._opening_of(body["prompt_token_ids"], thinking=thinking)
            choices = sorted(body["choices"], key=lambda choice: int(choice["index"]))
            indices = [int(choice["index"]) for choice in choices]
            if indices != list(range(count if tokens else min(count, max(1, len(indices))))):
                raise ValueError(f"{len(indices)} choices instead of {count}: {indices}")
            return Generation(
                prompt_token_ids=api.prompt_token_ids(body) if tokens else (),
                completions=tuple(
                    read_completion(api, c, seed=seed, tokens=tokens, opening=opening) for c in choices
                ),
            )

    async def ending_logprobs(
        self,
        prompt_token_ids: Sequence[int],
        beginnings: Sequence[str],
        endings: Sequence[str],
        *,
        lead: str,
        model: str,
    ) -> list[list[float]]:
        """log p(ending | prompt, beginning, lead) of a model on vLLM: a row for each beginning of an answer,
        a column for each ending. Beginnings are tokenised by themselves, the lead together with each ending.

        The server is asked for the next token after each different prefix, so endings that begin alike share
        the work. (`prompt_logprobs` would need one prompt for each ending.) Raises as `complete` does.
        """
        texts = [*dict.fromkeys(beginnings), lead, *(lead + ending for ending in endings)]
        tokens = dict(zip(texts, await self._token_ids(texts, model=model), strict=True))
        ends = [tokens[lead + ending] for ending in endings]
        shared = len(commonprefix([tokens[lead], *ends]))  # noqa: RUF071 -- of lists of tokens
        steps = [[(end[:place], end[place]) for place in range(shared, len(end))] for end in ends]
        starts = [tuple(prompt_token_ids) + tokens[beginning] for beginning in beginnings]
        following: dict[_Tokens, set[int]] = {}
        for start in starts:
            for prefix, token in chain.from_iterable(steps):
                following.setdefault(start + prefix, set()).add(token)
        logprobs = await self._next_logprobs(following, model=model)
        return [
            [math.fsum(logprobs[start + prefix, token] for prefix, token in path) for path in steps]
            for start in starts
        ]

    async def opening_of(self, prompt_token_ids: Sequence[int], *, thinking: bool | None = None) -> str:
        """The mark of reasoning with which a chat prompt ends; empty if it has none."""
        if self.opening is not None:
            return self.opening
        return await self._opening_of(prompt_token_ids, thinking=thinking)

    async def _token_ids(self, texts: Sequence[str], *, model: str) -> list[_Tokens]:
        """The tokens of texts. vLLM takes no empty one."""
        full = [text for text in texts if text]
        request = {"prompt": full, "add_special_tokens": False, "return_token_ids": True}
        async with self._one_token(request, model=model, count=len(full)) as choices:
            tokens = {t: tuple(c["prompt_token_ids"]) for t, c in zip(full, choices, strict=True)}
        return [tokens.get(text, ()) for text in texts]

    async def _next_logprobs(
        self, following: Mapping[_Tokens, set[int]], *, model: str
    ) -> dict[tuple[_Tokens, int], float]:
        """log p(token | prefix) of each prefix and the tokens `following` it."""
        logprobs, left = dict[tuple[_Tokens, int], float](), list(following)
        while left:
            ids, prefixes = set[int](), list[_Tokens]()
            # A request has one list of tokens for all its prompts.
            while left and len(prefixes) < _PREFIXES and len(ids | following[left[-1]]) <= _NEXT_TOKENS:
                prefixes.append(left.pop())
                ids |= following[prefixes[-1]]
            request = {
                "prompt": list(map(list, prefixes)),
                "logprobs": 0,
                "logprob_token_ids": sorted(ids),
                "return_tokens_as_token_ids": True,
            }
            async with self._one_token(request, model=model, count=len(prefixes)) as choices:
                for prefix, choice in zip(prefixes, choices, strict=True):
                    (row,) = choice["logprobs"]["top_logprobs"]
                    logprobs |= {(prefix, t): float(row[f"token_id:{t}"]) for t in following[prefix]}
        return logprobs

    @asynccontextmanager
    async def _one_token(
        self, request: dict[str, Any], *, model: str, count: int
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """The choices of a request for one more token after each of `count` texts. The block reads them: if
        one is malformed, it raises `PeerFault`."""
        request |= {"model": model, "max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": 0}
        response = await self._request("POST", LINE.path, request)
        with _parsing(response):
            choices: list[dict[str, Any]] = sorted(_body(response)["choices"], key=itemgetter("index"))
            if len(choices) != count:
                raise ValueError(f"{len(choices)} choices instead of {count}")
            yield choices

    async def _opening_of(self, prompt_token_ids: Sequence[int], *, thinking: bool | None) -> str:
        """The mark of reasoning at the end of the prompt, which a chat template ends alike every time."""
        if thinking not in self._openings:
            tail = list(prompt_token_ids[-_TAIL_TOKENS:])
            response = await self._request("POST", "/detokenize", {"tokens": tail})
            text = ""
            if response.status_code in (404, 405):
                logger.warning("%s: no /detokenize, so whether prompts open reasoning is unknown", self.url)
            else:
                with _parsing(response):
                    text = str(_body(response)["prompt"])
            self._openings[thinking] = opening_of(text)
        return self._openings[thinking]

    async def reload(self, adapter: Adapter, *, rollback: bool = False) -> dict[str, Any]:
        """Makes the server serve `adapter`; returns the timings of the stages in seconds. Raises
        `InvalidInput` if the server refuses the adapter and keeps its policy; `Conflict` if it serves this
        version with other bytes, or a newer version; `PeerFault` if there is no answer."""
        request = {
            "version": adapter.version.number,
            "path": adapter.path,
            "sha256": adapter.version.sha256,
            "base_model": adapter.base_model,
            "rollback": rollback,
        }
        return _body(await self._request("POST", "/reload", request))

    async def sleep(self) -> None:
        """Makes the server free its GPU, once it has answered the requests in flight. Later ones wait. Raises
        `Conflict` if it was started without --sleep; `PeerFault` if it does not answer, or requests are still
        in flight."""
        _body(await self._request("POST", "/sleep"))

    async def wake_up(self) -> None:
        """Makes the server take its GPU's memory back and go on. Raises `PeerFault` if it does not answer, or
        the memory is taken."""
        _body(await self._request("POST", "/wake_up"))

    async def lease(self, version: int, *, seconds: float) -> PolicyVersion:
        """Keeps a served version served for so long, though newer ones come. A second call renews the lease.
        Raises `NotFound` if the server does not serve the version; `Conflict` if other versions have all its
        leases, or it serves whole models; `PeerFault` if there is no answer within `POLICY_TIMEOUT_S`."""
        request = {"version": version, "seconds": seconds}
        response = await self._request("POST", "/lease", request, timeout_s=POLICY_TIMEOUT_S)
        with _parsing(response):
            body = _body(response)
            return PolicyVersion(int(body["version"]), str(body["sha256"]))

    async def end_lease(self, version: int) -> None:
        """Ends the lease of a version, if there is one. Raises `PeerFault` if it does not answer within
        `POLICY_TIMEOUT_S`."""
        _body(await self._request("DELETE", f"/lease/{version}", timeout_s=POLICY_TIMEOUT_S))

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> httpx.Response:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        try:
            return await self._http.request(method, path, json=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise PeerFault(f"{method} {self.url}{path}: {cause_message(error)}") from error


_ERRORS: dict[int, type[RookeryError]] = {
    400: InvalidInput,
    401: SetupError,
    403: SetupError,
    404: NotFound,
    409: Conflict,
    422: InvalidInput,
}


_CONTEXT_EXCEEDED = ("maximum context length is", "context_length_exceeded")
"""What vLLM says, with the sizes, and the code of OpenAI's errors."""


@contextmanager
def _parsing(response: httpx.Response) -> Iterator[None]:
    """Turns errors from parsing an unexpected answer into a `PeerFault`."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        request, answer = response.request, _text(response)[:200]
        raise PeerFault(
            f"{request.method} {request.url}: cannot read the answer {answer!r}: {error!r}"
        ) from error


def _text(response: httpx.Response) -> str:
    """The text of an answer without the request's key, which servers may quote."""
    key = response.request.headers.get("Authorization", "").removeprefix("Bearer ")
    return response.text.replace(key, MASK) if key else response.text


def _body(response: httpx.Response) -> dict[str, Any]:
    if response.is_success:
        with _parsing(response):
            body = response.json()
            if not isinstance(body, dict):
                raise TypeError("not a JSON object")
            return body
    kind = _ERRORS.get(response.status_code, PeerFault)
    request, detail = response.request, _text(response)
    if kind is InvalidInput and any(words in detail for words in _CONTEXT_EXCEEDED):
        kind = ContextExceeded
    remedy = f" ({REMEDY}; for a player, key-env or key-file)" if response.status_code == 401 else ""
    raise kind(f"{request.method} {request.url}: {response.status_code} {detail[:500]}{remedy}")
