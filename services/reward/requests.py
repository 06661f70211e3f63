"""Requests to the reward service: their JSON bodies, and how they are counted and cancelled.

gRPC cancels the calls of disconnected clients by itself, Starlette does not. A request that cannot finish
before the service stops gets a 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rookery import metrics
from rookery.errors import RookeryError, problem
from rookery.middleware import StrictBody
from rookery.trace import Outcome, Verdict
from services.reward.scorer import Item

Result = TypeVar("Result")

MAX_ITEMS = 1024
"""The most answers in one batch."""

_FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


class _Strict(StrictBody):
    model_config = ConfigDict(strict=True, frozen=True)


class ScoreRequest(_Strict):
    """A position and what a model answered."""

    fen: str = Field(examples=[_FEN])
    """The position, of chess or Chess960. It must be possible and have a legal move."""
    response: str = Field(examples=[r"<think>f7 is weak.</think> \boxed{Qxf7#}"])
    """The completion only, without the prompt."""
    task: str = Field(default="move", examples=["move"])
    """What was asked: `move`, `game` (the first line is the move), or RookWorld's `P` or `A`."""
    scheme: str = Field(default="", examples=["delta"])
    """`delta`, `best`, `accuracy`, `minmax`, `model`, or a sum: `delta+0.1*format`. Empty: the default."""
    truncated: bool = False
    """The completion was cut at its token limit."""
    move: str = Field(default="", examples=["e2e4"])
    """Task `A` only: the move that the model was asked about, in UCI."""
    target: str = ""
    """Tasks `P` and `A` only: the right answer, to judge by it instead of by the engine and the rules."""

    def item(self) -> Item:
        """The request as the scorer's `Item`."""
        return Item(
            self.fen,
            self.response,
            self.task,
            scheme=self.scheme,
            truncated=self.truncated,
            move=self.move,
            target=self.target,
        )


class BatchRequest(_Strict):
    """Up to 1024 answers. Answers to the same position share its search."""

    # Any, because a malformed item must become a problem in its own slot, not a 422 for the whole batch.
    items: list[Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/ScoreRequest"})]] = Field(
        max_length=MAX_ITEMS
    )
    """The answers to judge."""


class _Answer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class MoveBody(_Answer):
    """A legal move."""

    uci: str
    san: str


class EvaluationBody(_Answer):
    """An engine score for the side to move. Either `cp` or `mate` is null."""

    cp: int | None
    mate: int | None


class EngineBody(_Answer):
    """The engine that judged the answer."""

    id: str
    nodes: int
    """Nodes searched for this verdict; 0 if it needed no search."""


class ClaimBody(_Answer):
    """Something that the text says about the board. Places count Unicode code points of the response."""

    concept: str
    """The kind of claim, such as `passed pawn`."""
    start: int
    end: int
    true: bool | None
    """Null if only an engine could tell."""
    weight: float | None
    """What it counts for in `truth` if it is true, from 0 to 1; 0 for what is given. This service sets it."""


class SentenceBody(_Answer):
    """A sentence of the text before the box, and its place in the response."""

    start: int
    end: int
    read: bool
    """Whether all of it was understood."""
    claims: list[ClaimBody]


class ProcessRewardBody(_Answer):
    """The reward of a move that the reasoning names, by itself, and the move's place in the response."""

    start: int
    end: int
    reward: float


class VerdictBody(_Answer):
    """The verdict of one answer."""

    reward: float
    """The sum of the components."""
    outcome: Outcome
    move: MoveBody | None
    """The answer; null unless it is a legal move."""
    best: MoveBody | None
    """The engine's best move; null unless the answer is a legal move."""
    win_before: float | None
    """Win probability of the side to move after the engine's best move."""
    win_after: float | None
    """Win probability of the side to move after the answer."""
    regret: float | None
    """`win_before - win_after`, at least 0."""
    eval_before: EvaluationBody | None
    eval_after: EvaluationBody | None
    components: dict[str, float]
    engine: EngineBody | None
    reward_version: str
    """Names all that the reward depends on besides the request. Compare rewards only if it is equal."""
    sentences: list[SentenceBody]
    """What the text before the box says. Empty unless the scheme has `truth` and the answer is legal."""
    process_rewards: list[ProcessRewardBody]
    """Those of the moves named before the box; `reward` does not contain them. Empty unless the scheme has
    `candidates` and the answer is legal."""


class ProblemBody(_Answer):
    """Why there is no verdict, as an RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str


class BatchResponse(_Answer):
    """Verdicts in the order of the items. An item that could not be judged has a problem in its place."""

    verdicts: list[VerdictBody | ProblemBody]


# `VerdictBody` and `BatchResponse` only describe the JSON for OpenAPI. Responses are written directly from
# `Verdict`, which has the same fields, because converting to a `VerdictBody` first took 10 us for each
# verdict, half of what a cached verdict costs over HTTP.
_VERDICT = TypeAdapter(Verdict)
_VERDICTS = TypeAdapter(dict[str, list[Verdict | dict[str, object]]])


def verdict_json(verdict: Verdict) -> bytes:
    """The JSON of a `VerdictBody`."""
    return _VERDICT.dump_json(verdict)


def batch_json(results: Sequence[Verdict | RookeryError]) -> bytes:
    """The JSON of a `BatchResponse`."""
    slots = [problem(result) if isinstance(result, RookeryError) else result for result in results]
    return _VERDICTS.dump_json({"verdicts": slots})


class ClientDisconnected(HTTPException):
    """The client disconnected. 499 is nginx's status for this; nobody reads the response."""

    def __init__(self) -> None:
        super().__init__(499, "the client disconnected")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled if the caller of `request` disconnects.

    The body of `request` must have been read, because the next message is taken for the disconnect.

    Raises:
        ClientDisconnected: the caller disconnected before `work` was done.
    """
    working = asyncio.ensure_future(work)
    disconnecting = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, disconnecting), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        disconnecting.cancel()
        working.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@contextmanager
def counted(transport: str) -> Iterator[None]:
    """Counts the request that the block handles as `ok`, `cancelled`, `internal` or the kind of its error."""
    result = "internal"
    try:
        yield
        result = "ok"
    except (asyncio.CancelledError, ClientDisconnected):
        result = "cancelled"
        raise
    except RookeryError as error:
        result = error.kind
        raise
    finally:
        metrics.REWARD_REQUESTS.labels(transport, result).inc()
