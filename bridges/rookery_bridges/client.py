"""The client of the reward service: answers in, verdicts out; and turns of episodes. A fault is an exception,
never a reward."""

import asyncio
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from itertools import groupby
from typing import Any, Self, TypeVar

import httpx

T = TypeVar("T")

URL_VARIABLE = "ROOKERY_REWARD_URL"
TOKEN_VARIABLE = "ROOKERY_TOKEN"  # noqa: S105 (the name of a variable)
OPENING_VARIABLE = "ROOKERY_OPENING"
DEFAULT_URL = "http://localhost:8080"

MAX_ITEMS = 1024
"""The most answers that the service takes in one request."""

MAX_BYTES = 8 << 20
"""The most bytes of completions in one request: half of what the service takes, because JSON escapes some."""

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between attempts, unless the service asks for longer ones with `Retry-After`."""


class RewardFault(Exception):
    """There is no reward: the service does not answer, or it refuses the request.

    `retry_after_s` is None if asking again would not help, as after a FEN that is not valid.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:  # it crosses processes: without this, pickle loses the keyword
        return (type(self), self.args, {"retry_after_s": self.retry_after_s})


@dataclass(frozen=True, slots=True)
class Answer:
    """A position (FEN), a model's completion, and optionally what was asked: the fields of `/v1/score`."""

    fen: str
    response: str
    task: str = ""
    scheme: str = ""
    truncated: bool = False
    move: str = ""
    target: str = ""

    @classmethod
    def to(cls, label: str | Mapping[str, Any], response: str) -> Self:
        """The answer to what a data set's label names: a FEN, or other fields of this class, also as JSON.
        Raises `RewardFault` if the label has no FEN, or an unknown field."""
        try:
            fields = label
            if isinstance(fields, str):
                fields = json.loads(fields) if fields.lstrip().startswith("{") else {"fen": fields}
            return cls(**{**fields, "response": response})
        except (TypeError, ValueError) as error:
            raise RewardFault(f"label {str(label)[:200]!r} names no position: {error}") from error


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the service says about an answer.

    `outcome` is "legal" or why the answer is no legal move. `components` are the weighted terms of the
    scheme; their sum is the reward. `move` and `best` are in UCI. Compare rewards only if `reward_version` is
    equal.
    """

    reward: float
    outcome: str
    components: Mapping[str, float]
    reward_version: str
    move: str | None = None
    best: str | None = None
    regret: float | None = None
    mates: bool = False

    @property
    def legal(self) -> bool:
        return self.outcome == "legal"


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """An episode after a turn. `prompt` is the whole conversation, of which the next message of the model is
    the answer; None at the end. `tools` are the schemas for the chat template, with `calls=template`.
    `reward` is that of the turn: those of all turns add up to the episode's."""

    episode: Mapping[str, Any]
    prompt: list[dict[str, str]] | None
    tools: list[dict[str, Any]]
    fen: str
    observation: str
    reward: float
    done: bool


@dataclass(frozen=True, slots=True)
class RewardClient:
    """Asks the reward service at `url` (default: `ROOKERY_REWARD_URL`, then localhost:8080).

    `token` (default: `ROOKERY_TOKEN`) is sent as a bearer token. `scheme` is for answers that name none.
    `opening` (default: `ROOKERY_OPENING`) is put before each answer without a task, unless it begins so:
    `<think>` if the chat template ends prompts with it, else a box in unfinished reasoning would be judged.
    The client holds no connection: it can be pickled, forked and used from any thread and event loop.
    """

    url: str = ""
    token: str = field(default="", repr=False)
    scheme: str = ""
    timeout_s: float = 120.0
    opening: str = ""

    def score(self, answers: Iterable[Answer]) -> list[Verdict]:
        """Verdicts in the order of `answers`, asked for in one request (of at most 1024 answers).

        Keep the answers to a position together. A request is repeated if the service is busy or away. Raises
        `RewardFault` if the service did not answer after all attempts, or it refuses an answer.
        """
        return [
            verdict
            for batch in _batches(answers)
            for verdict in self._post("/v1/score/batch", self._body(batch), partial(_verdicts, batch=batch))
        ]

    async def ascore(self, answers: Iterable[Answer]) -> list[Verdict]:
        """The same as `score`, without blocking the event loop."""
        verdicts: list[Verdict] = []
        for batch in _batches(answers):
            read = partial(_verdicts, batch=batch)
            verdicts += await self._apost("/v1/score/batch", self._body(batch), read)
        return verdicts

    def play(self, episode: Mapping[str, Any], **following: Any) -> EpisodeState:
        """Begins an episode, or plays its next turn.

        `episode` has the fields of `/v1/episodes`: at first those that say how it begins, then the `episode`
        of the last state. `following` is what follows: `response`, with `truncated` if it was cut, or
        `cut=True` if the episode ends because its next prompt is too long. Raises as `score` does.
        """
        return self._post("/v1/episodes", self._turn(episode, following), _state)

    async def aplay(self, episode: Mapping[str, Any], **following: Any) -> EpisodeState:
        """The same as `play`, without blocking the event loop."""
        return await self._apost("/v1/episodes", self._turn(episode, following), _state)

    def _turn(self, episode: Mapping[str, Any], following: Mapping[str, Any]) -> dict[str, Any]:
        default = {"scheme": self.scheme} if self.scheme else {}
        body = {**default, **episode, **following}
        if "response" in following:
            body["response"] = self._with_opening(following["response"])
        return body

    def _post(self, path: str, body: dict[str, Any], read: Callable[[httpx.Response], T]) -> T:
        pauses = iter(PAUSES_S)
        with httpx.Client(**self._options()) as http:
            while True:
                try:
                    with _connection_faults():
                        response = http.post(path, json=body)
                    return _read(response, read)
                except RewardFault as fault:
                    time.sleep(_pause_s(fault, pauses))

    async def _apost(self, path: str, body: dict[str, Any], read: Callable[[httpx.Response], T]) -> T:
        pauses = iter(PAUSES_S)
        async with httpx.AsyncClient(**self._options()) as http:
            while True:
                try:
                    with _connection_faults():
                        response = await http.post(path, json=body)
                    return _read(response, read)
                except RewardFault as fault:
                    await asyncio.sleep(_pause_s(fault, pauses))

    def _with_opening(self, response: str) -> str:
        opening = self.opening or os.environ.get(OPENING_VARIABLE, "")
        return response if opening and response.lstrip().startswith(opening.strip()) else opening + response

    def _options(self) -> dict[str, Any]:
        url = self.url or os.environ.get(URL_VARIABLE, "") or DEFAULT_URL
        try:
            scheme = httpx.URL(url).scheme
        except httpx.InvalidURL:
            scheme = ""
        if scheme not in ("http", "https"):
            raise RewardFault(f"not an HTTP address of the reward service: {url!r}")
        token = (self.token or os.environ.get(TOKEN_VARIABLE, "")).strip()
        if token and not (token.isascii() and token.isprintable()):
            raise RewardFault(
                f"the token (`token` or {TOKEN_VARIABLE}) has characters that no header may have"
            )
        return {
            "base_url": url,
            "headers": {"Authorization": f"Bearer {token}"} if token else {},
            "timeout": self.timeout_s,
            "verify": _ssl_context() if scheme == "https" else False,
        }

    def _body(self, batch: Sequence[Answer]) -> dict[str, Any]:
        default = {"scheme": self.scheme} if self.scheme else {}
        # Empty fields are left out: the service has the defaults.
        return {
            "items": [
                default
                | {name: value for name, value in asdict(answer).items() if value}
                | {"response": answer.response if answer.task else self._with_opening(answer.response)}
                for answer in batch
            ]
        }


def with_reasoning(reasoning: str | None, text: str) -> str:
    """`text` after its reasoning, if a trainer or a server has split that off. None: nothing was split off;
    "": reasoning without a word, which ends what the prompt opened."""
    return text if reasoning is None else f"<think>{reasoning}</think>{text}"


@cache
def _ssl_context() -> Any:
    """The TLS settings, read once, because reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()


def _batches(answers: Iterable[Answer]) -> Iterator[list[Answer]]:
    """Splits the answers into batches of at most `MAX_ITEMS` and `MAX_BYTES`.

    Neighbours about one position stay together if they fit.
    """
    batch: list[Answer] = []
    size = 0
    for _, group in groupby(answers, key=lambda answer: answer.fen):
        same_position = [(answer, len(answer.response.encode(errors="replace"))) for answer in group]
        total = size + sum(length for _, length in same_position)
        if batch and (len(batch) + len(same_position) > MAX_ITEMS or total > MAX_BYTES):
            yield batch
            batch, size = [], 0
        for answer, length in same_position:
            if batch and (len(batch) == MAX_ITEMS or size + length > MAX_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(answer)
            size += length
    if batch:
        yield batch


@contextmanager
def _connection_faults() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        message = f"the reward service at {error.request.url} does not answer: {type(error).__name__} {error}"
        raise RewardFault(message, retry_after_s=0.0) from error


def _pause_s(fault: RewardFault, pauses: Iterator[float]) -> float:
    """Seconds until the next attempt. Raises `fault` if there is none."""
    pause_s = next(pauses, None)
    if fault.retry_after_s is None or pause_s is None:
        raise fault
    return max(pause_s, fault.retry_after_s)


def _read(response: httpx.Response, read: Callable[[httpx.Response], T]) -> T:
    if response.status_code in (429, 502, 503, 504):
        seconds = response.headers.get("Retry-After", "")
        raise RewardFault(_refusal(response), retry_after_s=float(seconds) if seconds.isdigit() else 0.0)
    if not response.is_success:
        raise RewardFault(_refusal(response))
    try:
        return read(response)
    except (KeyError, TypeError, ValueError) as error:
        message = f"{response.url}: cannot read {response.text[:200]!r}: {type(error).__name__} {error}"
        raise RewardFault(message) from error


def _verdicts(response: httpx.Response, batch: Sequence[Answer]) -> list[Verdict]:
    slots = response.json()["verdicts"]
    if len(slots) != len(batch):
        raise ValueError(f"{len(slots)} verdicts of {len(batch)} answers")
    return [_verdict(slot, answer) for slot, answer in zip(slots, batch, strict=True)]


def _state(response: httpx.Response) -> EpisodeState:
    body = response.json()
    state = EpisodeState(**{each.name: body[each.name] for each in fields(EpisodeState)})
    if not math.isfinite(state.reward):
        raise ValueError(f"the reward {state.reward}")
    return state


def _refusal(response: httpx.Response) -> str:
    return f"{response.url}: {response.status_code} {response.text[:500]}"


def _verdict(slot: dict[str, Any], answer: Answer) -> Verdict:
    if "status" in slot:  # a problem in the place of a verdict
        message = f"no reward for an answer to {answer.fen!r}: {slot['status']} {slot['detail']}"
        raise RewardFault(message, retry_after_s=0.0 if slot["status"] == 503 else None)
    reward = float(slot["reward"])
    if not math.isfinite(reward):
        raise ValueError(f"the reward {reward}")
    return Verdict(
        reward=reward,
        outcome=slot["outcome"],
        components=slot["components"],
        reward_version=slot["reward_version"],
        move=slot["move"] and slot["move"]["uci"],
        best=slot["best"] and slot["best"]["uci"],
        regret=slot["regret"],
        mates=bool(slot["move"]) and slot["move"]["san"].endswith("#"),
    )
