"""Requests to the reward service: their JSON bodies, and how they are counted and cancelled.

gRPC cancels the calls of disconnected clients by itself, Starlette does not. A request that cannot finish
before the service stops gets a 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rookery import metrics
from rookery.errors import QUOTED_CHARS, InvalidInput, RookeryError, problem, validation_message
from rookery.middleware import StrictBody, few_fields
from rookery.trace import ScoreItem, Verdict

Result = TypeVar("Result")

MAX_ITEMS = 1024
"""The most answers in one batch."""

ScoreBody = Annotated[ScoreItem, BeforeValidator(few_fields)]
"""The body of a request for one verdict."""

_ITEM = TypeAdapter[ScoreItem](ScoreBody)


def read_item(fields: object, *, place: str) -> ScoreItem:
    """The item with these fields. Raises `InvalidInput` if a field is missing, unknown or of another type.
    `place` is that of the whole."""
    try:
        return _ITEM.validate_python(fields)
    except ValidationError as error:
        raise _refusal(error, place=place) from error


def _refusal(error: ValidationError, *, place: str) -> InvalidInput:
    first = error.errors(include_url=False)[:1]
    return InvalidInput(validation_message(first, root=place, quote=lambda value: repr(value)[:QUOTED_CHARS]))


def _item_or_refusal(raw: object, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(raw)
    except ValidationError as error:
        return _refusal(error, place="item")


class BatchRequest(StrictBody):
    """Up to 1024 answers. Answers to the same position share its search."""

    # A malformed item becomes an `InvalidInput` in its own slot, not a 422 for the whole batch.
    items: list[Annotated[ScoreBody, WrapValidator(_item_or_refusal)]] = Field(max_length=MAX_ITEMS)
    """The answers to judge."""


class ProblemBody(BaseModel):
    """Why there is no verdict, as an RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str


class BatchResponse(BaseModel):
    """Verdicts in the order of the items. An item that could not be judged has a problem in its place."""

    verdicts: list[Verdict | ProblemBody]


_VERDICT = TypeAdapter(Verdict)
_VERDICTS = TypeAdapter(dict[str, list[Verdict | dict[str, object]]])


def verdict_json(verdict: Verdict) -> bytes:
    """The JSON of a verdict. FastAPI would check it first, which takes longer than to write it."""
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
    """The result of `work`, which is cancelled if the caller of `request` disconnects. The body of `request`
    must have been read, because the next message is taken for the disconnect. Raises `ClientDisconnected` if
    the caller disconnected before `work` was done."""
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
