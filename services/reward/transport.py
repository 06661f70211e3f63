"""Counts requests by result, and cancels those of HTTP clients that disconnect.

gRPC cancels the calls of disconnected clients by itself, Starlette does not. A request that cannot finish
before the service stops gets a 503.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from rookery import metrics
from rookery.errors import RookeryError, Unavailable

Result = TypeVar("Result")


class ClientDisconnected(HTTPException):
    """The client disconnected. 499 is nginx's status for this; nobody reads the response."""

    def __init__(self) -> None:
        super().__init__(499, "the client disconnected")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled if the caller of `request` disconnects.

    The body of `request` must have been read, because the next message is taken for the disconnect.

    Raises:
        ClientDisconnected: the caller disconnected before `work` was done.
        Unavailable: the service stops, and uvicorn cancelled a request that it could not drain in time.
    """
    working = asyncio.ensure_future(work)
    disconnecting = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, disconnecting), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    except asyncio.CancelledError as error:
        raise Unavailable("the reward service is stopping") from error
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
